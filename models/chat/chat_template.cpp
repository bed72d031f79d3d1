#include "models/chat/chat_template.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <functional>

#include "models/chat/jinja/interpreter.h"

namespace minfer {

using jinja::Dict;
using jinja::Origin;
using jinja::Rendered;
using jinja::TemplateError;
using jinja::Text;
using jinja::Value;

namespace {

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return local;
}

std::vector<PromptPart> to_parts(const Text& text) {
  std::vector<PromptPart> parts;
  jinja::Rendering::require(text.num_runs(), sizeof(PromptPart));
  text.for_each_run([&](std::string_view bytes, Origin origin) {
    parts.push_back({std::string(bytes), origin == Origin::source});
  });
  return parts;
}

jinja::Body parse(const std::string& text, const std::string& name) {
  try {
    return jinja::parse(text);
  } catch (const TemplateError& error) {
    fail<TemplateError>("{}: {}", name, error.what());
  }
}

/// Changes a message. None: leaves the message out. No value: keeps it.
using Change = std::function<std::optional<Value>(const Value& message)>;

/// The messages after a change; nothing if it changes none.
std::optional<Value> changed(const Value& messages, const Change& change) {
  jinja::Items items;
  bool any = false;
  for (const Value& message : messages.sequence()->items) {
    const std::optional<Value> other = message.dict() != nullptr ? change(message) : std::nullopt;
    any |= other.has_value();
    if (!other || !other->is_none()) items.push_back(other.value_or(message));
  }
  return any ? std::optional<Value>(jinja::make_list(std::move(items))) : std::nullopt;
}

Change without(std::string_view key) {
  return [key](const Value& message) -> std::optional<Value> {
    Dict rest;
    for (const Dict::Entry& entry : message.dict()->entries())
      if (entry.key.text()->bytes() != key) rest.set(*entry.key.text(), entry.value);
    if (rest.size() == message.dict()->size()) return std::nullopt;
    return jinja::make_dict(std::move(rest));
  };
}

/// The text that a message has under a key; null: none.
const Text* text_of(const Value& message, std::string_view key) {
  const Value* found = message.dict() == nullptr ? nullptr : message.dict()->find(key);
  return found == nullptr ? nullptr : found->text();
}

bool has_role(const Value& message, std::string_view role) {
  const Text* found = text_of(message, "role");
  return found != nullptr && found->bytes() == role;
}

Change without_role(std::string_view role) {
  return [role](const Value& message) {
    return has_role(message, role) ? std::optional<Value>(Value()) : std::nullopt;
  };
}

Value with_content(const Value& message, Text content) {
  Dict dict = *message.dict();
  dict.set(Text("content"), Value(std::move(content)));
  return jinja::make_dict(std::move(dict));
}

std::optional<Value> without_null(const Value& message) {
  const Value* content = message.dict()->find("content");
  if (content == nullptr || !content->is_none()) return std::nullopt;
  return with_content(message, Text());
}

/// True if the second message continues the first: both have the same role, a text, and nothing else.
bool continues(const Value& first, const Value& second) {
  const Text* role = text_of(first, "role");
  const Text* same = text_of(second, "role");
  return role != nullptr && same != nullptr && role->bytes() == same->bytes() && role->bytes() != "tool" &&
         text_of(first, "content") != nullptr && text_of(second, "content") != nullptr &&
         first.dict()->size() == 2 && second.dict()->size() == 2;
}

/// Messages of one role in a row as one, an empty line between their texts; nothing if there are none.
std::optional<Value> merged(const Value& messages) {
  jinja::Items items;
  for (const Value& message : messages.sequence()->items) {
    if (items.empty() || !continues(items.back(), message)) {
      items.push_back(message);
      continue;
    }
    Text text = *text_of(items.back(), "content");
    text.append("\n\n");
    text.append(*text_of(message, "content"));
    items.back() = with_content(items.back(), std::move(text));
  }
  if (items.size() == messages.sequence()->items.size()) return std::nullopt;
  return jinja::make_list(std::move(items));
}

}  // namespace

Value make_role(std::string_view role) {
  constexpr std::array<std::string_view, 12> kKnown{"system",      "developer", "user",    "assistant",
                                                    "tool",        "function",  "ipython", "observation",
                                                    "environment", "model",     "context", "tool_response"};
  const bool known = std::ranges::find(kKnown, role) != kKnown.end();
  return Value(Text(std::string(role), known ? Origin::source : Origin::request));
}

void ChatInput::add_message(std::string_view role, std::string_view content) {
  Dict message;
  message.set(Text("role"), make_role(role));
  message.set(Text("content"), Value(Text(std::string(content), Origin::request)));
  jinja::Items items = messages.sequence()->items;
  items.push_back(jinja::make_dict(std::move(message)));
  messages = jinja::make_list(std::move(items));
}

struct ChatTemplate::Impl {
  std::string title;  ///< for messages
  std::string bos;
  std::string eos;
  jinja::Limits limits;
  jinja::Body body;
  std::optional<jinja::Body> tool_use;
  /// The fields (see find_ignored) that the template used in some prompt.
  mutable std::array<std::atomic<bool>, 6> uses{};

  Rendered run(const ChatInput& input) const;
  Rendered run_repaired(ChatInput& input) const;
  std::vector<std::string> find_ignored(const ChatInput& input, const Rendered& made) const;
};

ChatTemplate::ChatTemplate(ChatTemplateSource source, std::string bos, std::string eos,
                           const jinja::Limits& limits) {
  std::optional<jinja::Body> tool_use;
  jinja::Body body = parse(source.text, source.name);
  if (!source.tool_use.empty()) tool_use = parse(source.tool_use, source.name + " (tool_use)");
  impl_.reset(new Impl{std::move(source.name), std::move(bos), std::move(eos), limits, std::move(body),
                       std::move(tool_use)});
}

const std::string& ChatTemplate::name() const {
  return impl_->title;
}

RenderedChat ChatTemplate::render(const ChatInput& input) const {
  jinja::Rendering rendering(impl_->limits, input.now ? *input.now : local_time());
  ChatInput taken = input;
  const Rendered made = impl_->run_repaired(taken);
  return {to_parts(made.text), impl_->find_ignored(taken, made)};
}

Rendered ChatTemplate::Impl::run(const ChatInput& input) const {
  Dict variables;
  variables.set(Text("bos_token"), jinja::make_text(bos));
  variables.set(Text("eos_token"), jinja::make_text(eos));
  variables.set(Text("messages"), input.messages);
  variables.set(Text("tools"), input.tools);
  variables.set(Text("documents"), input.documents);
  variables.set(Text("add_generation_prompt"), Value(input.add_generation_prompt));
  for (const auto& [name, value] : input.variables)
    variables.set(Text(name), value);
  const bool for_tools = tool_use && !input.tools.is_none();
  jinja::Rendering::current()->printed_none = false;
  Rendered made = jinja::render(for_tools ? *tool_use : body, variables);
  if (for_tools) made.read.emplace_back("tools");
  return made;
}

/// `input` becomes what was rendered.
Rendered ChatTemplate::Impl::run_repaired(ChatInput& input) const {
  std::vector<Value> ways{input.messages};
  std::optional<Value> texts = changed(input.messages, without_null);
  if (texts && !input.as_it_is) ways.push_back(*std::move(texts));
  const size_t num_whole = ways.size();
  std::optional<Value> turns = merged(ways.back());
  if (turns && !input.as_it_is) ways.push_back(*std::move(turns));
  std::optional<Rendered> with_none;
  std::exception_ptr why_not;
  for (size_t i = 0; i < ways.size() && !(i == num_whole && with_none); ++i) {
    ChatInput changed_input = input;
    changed_input.messages = ways[i];
    try {
      Rendered made = run(changed_input);
      if (!jinja::Rendering::current()->printed_none || (i > 0 && !with_none)) {
        input = std::move(changed_input);
        return made;
      }
      if (i == 0) with_none = std::move(made);
    } catch (const jinja::TemplateRaised&) {
      if (why_not == nullptr) why_not = std::current_exception();
    } catch (const TemplateError& error) {
      if (why_not == nullptr)
        why_not = std::make_exception_ptr(TemplateError(fmt::format("{}: {}", title, error.what())));
    }
  }
  if (with_none) return *std::move(with_none);
  std::rethrow_exception(why_not);
}

std::vector<std::string> ChatTemplate::Impl::find_ignored(const ChatInput& input,
                                                          const Rendered& made) const {
  std::vector<std::string> ignored;
  const auto is_read = [&](std::string_view name) {
    return std::ranges::find(made.read, name) != made.read.end();
  };
  for (const auto& [name, value] : input.variables)
    if (!is_read(name)) ignored.push_back(name);
  const auto check = [&](size_t field, std::string_view name, std::string_view variable, const auto& remove) {
    std::atomic<bool>& is_used = uses[field];
    ChatInput rest = input;
    if (is_used || !remove(rest)) return;
    try {
      is_used = is_read(variable) && run(rest).text.bytes() != made.text.bytes();
    } catch (const TemplateError&) {
      is_used = true;
    }
    if (!is_used) ignored.emplace_back(name);
  };
  const auto edit = [](Change change) {
    return [change = std::move(change)](ChatInput& rest) {
      std::optional<Value> messages = changed(rest.messages, change);
      if (messages) rest.messages = *messages;
      return messages.has_value();
    };
  };
  check(0, "tools", "tools", [](ChatInput& rest) { return std::exchange(rest.tools, Value()).truth(); });
  check(1, "documents", "documents",
        [](ChatInput& rest) { return std::exchange(rest.documents, Value()).truth(); });
  check(2, "messages[].tool_calls", "messages", edit(without("tool_calls")));
  // Results of calls have a name by which templates may tell them apart: the speaker's is another matter.
  check(3, "messages[].name", "messages", edit([](const Value& message) {
          return has_role(message, "tool") ? std::nullopt : without("name")(message);
        }));
  check(4, "messages[].role:tool", "messages", edit(without_role("tool")));
  check(5, "messages[].role:system", "messages", edit(without_role("system")));
  return ignored;
}

}  // namespace minfer
