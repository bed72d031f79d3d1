#include "models/chat/chat_template.h"

#include <algorithm>
#include <array>

#include "models/chat/jinja/interpreter.h"
#include "models/chat/jinja/syntax/parser.h"

namespace minfer {

using jinja::Dict;
using jinja::Origin;
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

struct ChatTemplate::Parsed {
  jinja::Body body;
  std::optional<jinja::Body> tool_use;
};

ChatTemplate::ChatTemplate(ChatTemplateSource source, std::string bos, std::string eos,
                           const jinja::Limits& limits)
    : name_(std::move(source.name)), bos_(std::move(bos)), eos_(std::move(eos)), limits_(limits) {
  auto parsed = std::make_unique<Parsed>();
  parsed->body = parse(source.text, name_);
  if (!source.tool_use.empty()) parsed->tool_use = parse(source.tool_use, name_ + " (tool_use)");
  parsed_ = std::move(parsed);
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::vector<PromptPart> ChatTemplate::render(const ChatInput& input) const {
  Dict variables;
  variables.set(Text("bos_token"), jinja::make_text(bos_));
  variables.set(Text("eos_token"), jinja::make_text(eos_));
  variables.set(Text("messages"), input.messages);
  variables.set(Text("tools"), input.tools);
  variables.set(Text("documents"), input.documents);
  variables.set(Text("add_generation_prompt"), Value(input.add_generation_prompt));
  for (const auto& [name, value] : input.variables)
    variables.set(Text(name), value);
  const bool for_tools = parsed_->tool_use && !input.tools.is_none();
  jinja::Evaluation evaluation(limits_, input.now ? *input.now : local_time());
  try {
    return to_parts(
        jinja::Interpreter(evaluation, for_tools ? *parsed_->tool_use : parsed_->body, variables).run());
  } catch (const jinja::TemplateRaised&) {
    throw;
  } catch (const TemplateError& error) {
    fail<TemplateError>("{}: {}", name_, error.what());
  }
}

}  // namespace minfer
