#include "server/openai/openai_chat.h"

#include <algorithm>

#include <fmt/format.h>

#include "server/openai/json_body.h"
#include "server/openai/openai_fields.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// Bytes that a template may put behind the text of the last message: its end-of-turn marker.
constexpr size_t kMaxMarkupBehind = 256;
constexpr std::string_view kWhitespace = " \t\r\n";

/// Whether tools are shown to the model. Whether it calls one is its own choice: nothing here can force it to.
bool read_tool_choice(JsonFields& fields) {
  const Json* choice = fields.any("tool_choice");
  if (choice == nullptr || *choice == "auto") return true;
  if (*choice == "none") return false;
  throw unsupported("tool_choice", fmt::format("tool_choice: {}, only \"auto\" and \"none\" are supported",
                                               describe(*choice)));
}

/// Variables of the template's own, such as enable_thinking. Those that the request sets elsewhere cannot be
/// set here.
void add_template_variables(JsonFields& fields, Json& variables) {
  const Json* object = fields.object("chat_template_kwargs");
  if (object == nullptr) return;
  for (const auto& [name, value] : object->items()) {
    if (variables.contains(name) || name == "tools" || name == "bos_token" || name == "eos_token") {
      throw fields.error("chat_template_kwargs", fmt::format("{} cannot be set here", describe(Json(name))));
    }
    variables[name] = value;
  }
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhitespace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhitespace) - begin + 1);
}

std::string read_continued_text(JsonFields& fields, const Json& variables) {
  if (!fields.boolean("continue_final_message").value_or(false)) return {};
  if (variables["add_generation_prompt"] == true) {
    throw fields.error("continue_final_message", "only allowed when add_generation_prompt is false");
  }
  const Json& last = variables["messages"].back();
  if (last["role"] != "assistant" || !last["content"].is_string() ||
      trimmed(last["content"].get_ref<const std::string&>()).empty()) {
    throw fields.error("continue_final_message", "expects a last message of the assistant with a text");
  }
  return last["content"].get<std::string>();
}

/// Drops what the template wrote behind `text`, less white space around it where the template dropped that.
void cut_behind(std::vector<PromptPart>& parts, std::string_view text) {
  std::string all;
  for (const PromptPart& part : parts)
    all += part.text;
  const std::string_view core = trimmed(text);
  const size_t earliest = all.size() - std::min(all.size(), core.size() + kMaxMarkupBehind);
  const size_t begin = std::string_view(all).substr(earliest).rfind(core);
  if (begin == std::string_view::npos) {
    throw bad_request("continue_final_message",
                      "continue_final_message: the chat template does not end with the last message's text");
  }
  size_t end = earliest + begin + core.size();
  const std::string_view behind = text.substr(text.find_last_not_of(kWhitespace) + 1);
  if (std::string_view(all).substr(end).starts_with(behind)) end += behind.size();
  for (PromptPart& part : parts) {
    part.text.resize(std::min(part.text.size(), end));
    end -= part.text.size();
  }
}

std::vector<PromptPart> render(const ChatPrompt& prompt, const ApiContext& context) {
  try {
    return context.render_chat(prompt.variables);
  } catch (const Error& error) {
    throw bad_request("messages", fmt::format("messages: the chat template refuses them: {}", error.what()));
  }
}

}  // namespace

ChatPrompt read_chat_prompt(JsonFields& fields, const ApiContext& context) {
  ChatPrompt prompt;
  prompt.variables["messages"] = read_messages(fields.required_array("messages"), fields.unknown());
  const bool shows_tools = read_tool_choice(fields);
  if (const Json* tools = fields.array("tools"); tools != nullptr && !tools->empty()) {
    Json checked = read_tools(*tools, context.limits.max_tools, fields.unknown());
    if (shows_tools) prompt.variables["tools"] = std::move(checked);
  }
  prompt.variables["add_generation_prompt"] = fields.boolean("add_generation_prompt").value_or(true);
  prompt.continued_text = read_continued_text(fields, prompt.variables);
  prompt.add_special = fields.boolean("add_special_tokens").value_or(false);
  add_template_variables(fields, prompt.variables);
  if (fields.any("chat_template") != nullptr) {
    throw unsupported("chat_template", "chat_template: a request may not bring one");
  }
  return prompt;
}

std::vector<TokenId> tokenise_chat(const ChatPrompt& prompt, const ApiContext& context) {
  std::vector<PromptPart> parts = render(prompt, context);
  if (!prompt.continued_text.empty()) cut_behind(parts, prompt.continued_text);
  size_t bytes = 0;
  for (const PromptPart& part : parts)
    bytes += part.text.size();
  check_text_length("messages", bytes, context);
  std::vector<TokenId> ids = context.tokenizer->encode_parts(parts, prompt.add_special);
  if (ids.empty()) throw bad_request("messages", "messages: the prompt has no tokens");
  return ids;
}

}  // namespace minfer
