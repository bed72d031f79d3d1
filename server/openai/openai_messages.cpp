// The messages of a chat request and the tools it offers.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "server/openai/json_body.h"
#include "server/openai/openai_chat.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant", "tool"};
constexpr size_t kMaxFunctionName = 64;

std::string read_text_part(const Json& part, const std::string& path) {
  JsonFields fields(part, path);
  const std::string type = fields.required_text("type");
  if (type != "text") {
    throw unsupported(path, fmt::format("{}.type: {}, only \"text\" is supported (no images, audio or files)",
                                        path, describe(type)));
  }
  std::string text = fields.required_text("text");
  fields.refuse_unknown();
  return text;
}

/// A string, or text parts joined by line ends. null stays null: what is said lies in tool calls.
Json read_content(const Json* content, const std::string& path) {
  if (content == nullptr) return nullptr;
  if (content->is_string()) return *content;
  if (!content->is_array() || content->empty()) {
    throw wrong_value(path, *content, "a string or an array of text parts");
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    if (i > 0) text += '\n';
    text += read_text_part((*content)[i], fmt::format("{}[{}]", path, i));
  }
  return text;
}

/// Templates write the arguments as JSON themselves: given a string they would quote it once more. Text that
/// is no JSON object (models write such too) stays as it is.
Json read_arguments(const std::string& text) {
  if (text.empty()) return Json::object();
  try {
    return parse_json_body(text);
  } catch (const ApiError&) {
    return text;
  }
}

Json read_tool_call(const Json& call, const std::string& path) {
  JsonFields fields(call, path);
  Json made = Json::object();
  made["id"] = fields.required_text("id");
  made["type"] = fields.required_text("type");
  if (made["type"] != "function") throw wrong_value(path + ".type", made["type"], "\"function\"");
  const Json* function = fields.object("function");
  if (function == nullptr) throw fields.error("function", "missing, expected an object");
  JsonFields function_fields(*function, path + ".function");
  made["function"]["name"] = function_fields.required_text("name");
  made["function"]["arguments"] = read_arguments(function_fields.required_text("arguments"));
  function_fields.refuse_unknown();
  fields.refuse_unknown();
  return made;
}

void read_tool_calls(JsonFields& fields, Json& message) {
  const Json* calls = fields.array("tool_calls");
  if (calls == nullptr || calls->empty()) return;
  Json& made = message["tool_calls"] = Json::array();
  for (size_t i = 0; i < calls->size(); ++i)
    made.push_back(read_tool_call((*calls)[i], fmt::format("{}[{}]", fields.path("tool_calls"), i)));
}

/// What OpenAI's own answers hold beside the text, so that a client can send them back as they were.
void refuse_in_answers(JsonFields& fields) {
  for (const char* name : {"refusal", "audio", "function_call"}) {
    if (fields.any(name) != nullptr) {
      throw unsupported(fields.path(name),
                        fmt::format("{}: not supported, expected null", fields.path(name)));
    }
  }
  const Json* annotations = fields.array("annotations");
  if (annotations != nullptr && !annotations->empty()) {
    throw unsupported(fields.path("annotations"),
                      fmt::format("{}: not supported, expected an empty array", fields.path("annotations")));
  }
}

void read_assistant(JsonFields& fields, Json& message) {
  read_tool_calls(fields, message);
  for (const char* name : {"reasoning_content", "reasoning"}) {
    if (std::optional<std::string> text = fields.text(name)) message[name] = std::move(*text);
  }
  refuse_in_answers(fields);
}

Json read_message(const Json& object, const std::string& path) {
  JsonFields fields(object, path);
  std::string role = fields.required_text("role");
  if (std::ranges::find(kRoles, role) == kRoles.end()) {
    throw wrong_value(fields.path("role"), role, "system, developer, user, assistant or tool");
  }
  Json message = Json::object();
  message["role"] = role == "developer" ? "system" : role;
  message["content"] = read_content(fields.any("content"), fields.path("content"));
  if (std::optional<std::string> name = fields.text("name")) message["name"] = std::move(*name);
  if (role == "assistant") read_assistant(fields, message);
  if (role == "tool") message["tool_call_id"] = fields.required_text("tool_call_id");
  fields.refuse_unknown();
  if (message["content"].is_null() && !message.contains("tool_calls")) {
    throw fields.error("content", "missing, expected a string or an array of text parts");
  }
  return message;
}

bool is_function_name(const std::string& name) {
  return !name.empty() && name.size() <= kMaxFunctionName && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

void check_tool(const Json& tool, const std::string& path) {
  JsonFields fields(tool, path);
  if (const std::string type = fields.required_text("type"); type != "function") {
    throw unsupported(path + ".type",
                      fmt::format("{}.type: {}, only \"function\" is supported", path, describe(type)));
  }
  const Json* function = fields.object("function");
  if (function == nullptr) throw fields.error("function", "missing, expected an object");
  fields.refuse_unknown();
  JsonFields function_fields(*function, path + ".function");
  if (const std::string name = function_fields.required_text("name"); !is_function_name(name)) {
    throw wrong_value(function_fields.path("name"), name, "1 to 64 of the characters a-z A-Z 0-9 _ -");
  }
  function_fields.text("description");
  function_fields.object("parameters");
  if (function_fields.boolean("strict").value_or(false)) {
    throw unsupported(function_fields.path("strict"),
                      fmt::format("{}: true is not supported: answers are not held to a schema",
                                  function_fields.path("strict")));
  }
  function_fields.refuse_unknown();
}

}  // namespace

Json read_messages(const Json& list) {
  if (list.empty()) throw bad_request("messages", "messages: empty, expected at least one message");
  Json messages = Json::array();
  for (size_t i = 0; i < list.size(); ++i)
    messages.push_back(read_message(list[i], fmt::format("messages[{}]", i)));
  return messages;
}

Json read_tools(const Json& list, int32_t max_tools) {
  if (list.size() > static_cast<size_t>(max_tools)) {
    throw bad_request("tools", fmt::format("tools: {} tools, expected at most {}", list.size(), max_tools));
  }
  for (size_t i = 0; i < list.size(); ++i)
    check_tool(list[i], fmt::format("tools[{}]", i));
  return list;
}

}  // namespace minfer
