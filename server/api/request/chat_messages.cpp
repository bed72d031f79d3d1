// The messages of a chat request and the tools it offers.
#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "models/chat/answer/custom_input.h"
#include "server/api/fields/json_body.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/custom_tool.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 5> kRoles{"system", "developer", "user", "assistant", "tool"};
constexpr size_t kMaxFunctionName = 128;  // Anthropic's; OpenAI's is 64

std::string read_text_part(const Json& part, const std::string& path, UnknownFields& unknown) {
  JsonFields fields(part, path, unknown);
  const std::string type = fields.required_text("type");
  if (type != "text") {
    throw unsupported(path, fmt::format("{}.type: {}, only \"text\" is supported (no images, audio or files)",
                                        path, describe(type)));
  }
  std::string text = fields.required_text("text");
  fields.report_unknown();
  return text;
}

/// A string, or text parts joined by line ends. null stays null: the content is in tool
/// calls. So does the assistant's list without parts, which some clients send instead.
Json read_content(const Json* content, const std::string& path, bool of_assistant, UnknownFields& unknown) {
  if (content == nullptr || (of_assistant && content->is_array() && content->empty())) return nullptr;
  if (content->is_string()) return *content;
  if (!content->is_array() || content->empty()) {
    throw wrong_value(path, *content, "a string or an array of text parts");
  }
  std::string text;
  for (size_t i = 0; i < content->size(); ++i) {
    if (i > 0) text += '\n';
    text += read_text_part((*content)[i], fmt::format("{}[{}]", path, i), unknown);
  }
  return text;
}

/// `index`, which streamed answers have, has no effect here: the list's order counts.
/// A call of a custom tool becomes a call of the function that stands for the tool.
Json read_tool_call(const Json& call, const std::string& path, UnknownFields& unknown) {
  JsonFields fields(call, path, unknown);
  Json made = Json::object();
  made["id"] = fields.required_text("id");
  made["type"] = "function";
  const std::string type = fields.text("type").value_or("function");
  if (type != "function" && type != "custom")
    throw wrong_value(path + ".type", type, "\"function\" or \"custom\"");
  const Json* called = fields.object(type);
  if (called == nullptr) throw fields.error(type, "missing, expected an object");
  JsonFields called_fields(*called, fields.path(type), unknown);
  made["function"]["name"] = called_fields.required_text("name");
  made["function"]["arguments"] = type == "custom"
                                      ? Json{{kCustomInput, called_fields.required_text("input")}}
                                      : read_arguments(called_fields.required_text("arguments"));
  fields.any("index");
  called_fields.report_unknown();
  fields.report_unknown();
  return made;
}

void read_tool_calls(JsonFields& fields, Json& message) {
  const Json* calls = fields.array("tool_calls");
  if (calls == nullptr || calls->empty()) return;
  Json& made = message["tool_calls"] = Json::array();
  for (size_t i = 0; i < calls->size(); ++i)
    made.push_back(
        read_tool_call((*calls)[i], fmt::format("{}[{}]", fields.path("tool_calls"), i), fields.unknown()));
}

/// Members that OpenAI's own answers hold beside the text, so that a client can send
/// answers back unchanged. Annotations say where a text comes from and are not part of it.
void refuse_in_answers(JsonFields& fields) {
  for (const char* name : {"refusal", "audio", "function_call"}) {
    if (fields.any(name) != nullptr) {
      throw unsupported(fields.path(name),
                        fmt::format("{}: not supported, expected null", fields.path(name)));
    }
  }
  fields.any("annotations");
}

void read_assistant(JsonFields& fields, Json& message) {
  read_tool_calls(fields, message);
  for (const char* name : {"reasoning_content", "reasoning"}) {
    if (std::optional<std::string> text = fields.text(name)) message[name] = std::move(*text);
  }
  refuse_in_answers(fields);
}

/// `type` ("message", as in other interfaces) has no effect here; some templates use `name`.
Json read_message(const Json& object, const std::string& path, UnknownFields& unknown) {
  JsonFields fields(object, path, unknown);
  std::string role = fields.required_text("role");
  if (std::ranges::find(kRoles, role) == kRoles.end()) {
    throw wrong_value(fields.path("role"), role, "system, developer, user, assistant or tool");
  }
  Json message = Json::object();
  message["role"] = role == "developer" ? "system" : role;
  message["content"] =
      read_content(fields.any("content"), fields.path("content"), role == "assistant", unknown);
  if (const Json* name = fields.any("name"); name != nullptr && name->is_string()) message["name"] = *name;
  fields.any("type");
  if (role == "assistant") read_assistant(fields, message);
  if (role == "tool") message["tool_call_id"] = fields.required_text("tool_call_id");
  fields.report_unknown();
  // An answer that ended before its first word.
  if (message["content"].is_null() &&
      (message.contains("reasoning_content") || message.contains("reasoning")) &&
      !message.contains("tool_calls"))
    message["content"] = "";
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

void read_function(JsonFields& fields, OfferedTools& tools) {
  const Json* function = fields.object("function");
  if (function == nullptr) throw fields.error("function", "missing, expected an object");
  const std::string path = fields.path("function");
  JsonFields function_fields(*function, path, fields.unknown());
  const std::string name = function_fields.required_text("name");
  function_fields.text("description");
  function_fields.object("parameters");
  if (const Json* strict = function_fields.any("strict"); strict != nullptr && *strict == true)
    tools.strict.push_back(name);
  function_fields.report_unknown();
  tools.custom.erase(name);
  tools.input_grammars.erase(name);
  tools.shown.push_back(
      make_tool(name, path, function_fields.any("description"), function_fields.any("parameters")));
}

void read_custom(JsonFields& fields, bool holds_lark, OfferedTools& tools) {
  const Json* object = fields.object("custom");
  if (object == nullptr) throw fields.error("custom", "missing, expected an object");
  JsonFields custom(*object, fields.path("custom"), fields.unknown());
  const std::string name = custom.required_text("name");
  custom.text("description");
  const std::optional<CustomTool> tool = read_custom_tool(custom, holds_lark);
  if (!tool) return;
  custom.report_unknown();
  if (tool->is_strict) tools.strict.push_back(name);
  tools.custom.insert(name);
  tools.input_grammars.erase(name);
  if (!tool->lark.empty()) tools.input_grammars.emplace(name, tool->lark);
  tools.shown.push_back(make_tool(name, fields.path("custom"), custom.any("description"), &tool->parameters));
}

}  // namespace

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

Json make_tool(const std::string& name, const std::string& path, const Json* description,
               const Json* parameters) {
  if (!is_function_name(name)) {
    throw wrong_value(path + ".name", name, "1 to 128 of the characters a-z A-Z 0-9 _ -");
  }
  Json made{{"type", "function"}, {"function", {{"name", name}}}};
  if (description != nullptr) made["function"]["description"] = *description;
  if (parameters != nullptr) made["function"]["parameters"] = *parameters;
  return made;
}

Json read_messages(const Json& list, UnknownFields& unknown) {
  if (list.empty()) throw bad_request("messages", "messages: empty, expected at least one message");
  Json messages = Json::array();
  for (size_t i = 0; i < list.size(); ++i)
    messages.push_back(read_message(list[i], fmt::format("messages[{}]", i), unknown));
  return messages;
}

void check_num_tools(const Json& list, int32_t max_tools) {
  if (list.size() <= static_cast<size_t>(max_tools)) return;
  throw bad_request("tools", fmt::format("tools: {} tools, expected at most {}", list.size(), max_tools));
}

OfferedTools read_tools(const Json& list, const ApiContext& context, UnknownFields& unknown) {
  check_num_tools(list, context.limits.max_tools);
  const bool holds_lark = can_hold_lark(context);
  OfferedTools tools{.shown = Json::array(), .strict = {}, .custom = {}, .input_grammars = {}};
  for (size_t i = 0; i < list.size(); ++i) {
    JsonFields fields(list[i], fmt::format("tools[{}]", i), unknown);
    const std::string type = fields.text("type").value_or("function");
    if (type == "function") {
      read_function(fields, tools);
    } else if (type == "custom") {
      read_custom(fields, holds_lark, tools);
    } else {
      throw unsupported(fields.path("type"),
                        fmt::format("{}: {}, only \"function\" or \"custom\" is supported",
                                    fields.path("type"), describe(Json(type))));
    }
    fields.report_unknown();
  }
  return tools;
}

}  // namespace minfer
