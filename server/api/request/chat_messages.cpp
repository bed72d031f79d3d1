// The messages of a chat request.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "models/chat/answer/custom_input.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"

namespace minfer {
namespace {

constexpr std::string_view kTextOrParts = "a string or an array of text parts";
constexpr std::pair<std::string_view, std::string_view> kChatTexts[] = {{"text", "text"}};

/// null stays null: the content is in tool calls. So does the assistant's list without parts, which some clients send instead.
Json read_content(JsonFields& fields, bool of_assistant) {
  const Json* content = fields.any("content");
  const bool is_empty = content != nullptr && content->is_array() && content->empty();
  if (content == nullptr || (of_assistant && is_empty)) return nullptr;
  if (is_empty) throw wrong_value(fields.path("content"), *content, kTextOrParts);
  return read_texts(fields, "content", kChatTexts);
}

/// `index`, which streamed answers have, has no effect here: the list's order counts.
/// A call of a custom tool becomes a call of the function that stands for the tool.
Json read_tool_call(JsonFields& fields) {
  const std::string id = fields.required_text("id");
  const std::string type = fields.text("type").value_or("function");
  if (type != "function" && type != "custom")
    throw wrong_value(fields.path("type"), type, "\"function\" or \"custom\"");
  JsonFields& called = fields.required_inner(type);
  const std::string name = called.required_text("name");
  Json arguments = type == "custom" ? Json{{kCustomInput, called.required_text("input")}}
                                    : read_arguments(called.required_text("arguments"));
  fields.any("index");
  return make_call(id, name, std::move(arguments));
}

void read_assistant(JsonFields& fields, Json& message) {
  fields.each("tool_calls", [&](JsonFields& call) { message["tool_calls"].push_back(read_tool_call(call)); });
  for (const char* name : {"reasoning_content", "reasoning"}) {
    if (std::optional<std::string> text = fields.text(name)) message[name] = std::move(*text);
  }
  // OpenAI's own answers hold these members too, so that a client can send answers back unchanged.
  for (const char* name : {"refusal", "audio", "function_call"})
    if (fields.any(name) != nullptr) throw unsupported(fields.path(name), "not supported, expected null");
  fields.any("annotations");  // where a text comes from: not part of it
}

/// `type` ("message", as in other interfaces) has no effect here; some templates use `name`.
Json read_message(JsonFields& fields) {
  const std::string role =
      fields.required_choice("role", {"system", "developer", "user", "assistant", "tool"});
  Json message = Json::object();
  message["role"] = role == "developer" ? "system" : role;
  message["content"] = read_content(fields, role == "assistant");
  if (const Json* name = fields.any("name"); name != nullptr && name->is_string()) message["name"] = *name;
  fields.any("type");
  if (role == "assistant") read_assistant(fields, message);
  if (role == "tool") message["tool_call_id"] = fields.required_text("tool_call_id");
  // An answer that ended before its first word.
  if (message["content"].is_null() &&
      (message.contains("reasoning_content") || message.contains("reasoning")) &&
      !message.contains("tool_calls"))
    message["content"] = "";
  if (message["content"].is_null() && !message.contains("tool_calls"))
    throw fields.error("content", "missing, expected a string or an array of text parts");
  return message;
}

}  // namespace

void join_line(std::string& text, std::string_view more) {
  if (!text.empty()) text += '\n';
  text += more;
}

std::string read_texts(JsonFields& fields, std::string_view name, TextParts types,
                       std::span<const std::string_view> advice) {
  const Json& value = fields.required(name, kTextOrParts);
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) throw wrong_value(fields.path(name), value, kTextOrParts);
  std::string text;
  fields.each(name, [&](JsonFields& part) {
    const std::string type = part.required_text("type");
    const auto known = std::ranges::find(types, type, [](const auto& each) { return each.first; });
    if (known == types.end()) refuse_part(part.path(), type, fmt::format("\"{}\"", types.front().first));
    if (!known->second.empty()) join_line(text, part.required_text(known->second));
    for (const std::string_view member : advice)
      part.any(member);
  });
  return text;
}

void refuse_part(const std::string& path, std::string_view type, std::string_view expected) {
  throw ApiError(400,
                 fmt::format("{}.type: {}, expected {} (no images, audio, documents or tools of the server)",
                             path, describe(Json(type)), expected),
                 path, "unsupported_value");
}

Json make_call(std::string_view id, std::string_view name, Json arguments) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}};
}

Json make_assistant_message(const std::string& content, const std::string& reasoning, Json calls) {
  Json message{{"role", "assistant"}, {"content", content}};
  if (content.empty() && !calls.empty()) message["content"] = nullptr;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

/// Templates write the arguments as JSON themselves: they would quote a string once
/// more. Text that is not a JSON object (models write such text too) stays as it is.
Json read_arguments(const std::string& text) {
  if (text.empty()) return Json::object();
  try {
    return parse_json_body(text);
  } catch (const ApiError&) {
    return text;
  }
}

Json read_messages(JsonFields& fields) {
  Json messages = Json::array();
  fields.each_required("messages", "message",
                       [&](JsonFields& message) { messages.push_back(read_message(message)); });
  return messages;
}

}  // namespace minfer
