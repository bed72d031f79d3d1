// The conversation and the tools of a request to /v1/messages.
#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/api/fields/json_body.h"
#include "server/api/request/chat_prompt.h"
#include "server/dialects/anthropic/messages.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

void append_line(std::string& text, std::string_view more) {
  if (!text.empty()) text += '\n';
  text += more;
}

[[noreturn]] void refuse_block(const std::string& path, const std::string& type, std::string_view expected) {
  throw unsupported(
      path, fmt::format("{}.type: {}, expected {} (no images, documents or tools of the server)", path,
                        describe(type), expected));
}

/// Calls and results of another server's tools, which cannot be read here: web
/// searches are encrypted, and tool searches find tools that are offered anyway.
constexpr std::array<std::string_view, 3> kWithoutText{"server_tool_use", "web_search_tool_result",
                                                       "tool_search_tool_result"};

/// A string, or blocks of text joined by line ends. A reference to a tool says its name: the model sees all tools from the beginning,
/// so that adding one (`tool_addition`) says nothing.
std::string read_texts(const Json& content, const std::string& path, UnknownFields& unknown) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) throw wrong_value(path, content, "a string or an array of text blocks");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", path, i);
    JsonFields fields(content[i], place, unknown);
    const std::string type = fields.required_text("type");
    if (type == "tool_addition") {
      fields.any("tool");
    } else if (type == "tool_reference") {
      append_line(text, fields.required_text("tool_name"));
    } else if (type == "text") {
      append_line(text, fields.required_text("text"));
      fields.any("citations");
    } else {
      refuse_block(place, type, "\"text\"");
    }
    fields.any("cache_control");
    fields.report_unknown();
  }
  return text;
}

/// One conversation: the messages so far, and the functions by the ids of their calls, which templates name with results.
class MessagesReader {
 public:
  explicit MessagesReader(UnknownFields& unknown) : unknown_(unknown) {}

  void add(const Json& message, const std::string& path) {
    JsonFields fields(message, path, unknown_);
    const std::string role = fields.required_text("role");
    const Json* content = fields.any("content");
    if (content == nullptr) throw fields.error("content", "missing, expected a string or an array of blocks");
    if (role == "user") {
      add_user(*content, fields.path("content"));
    } else if (role == "assistant") {
      add_assistant(*content, fields.path("content"));
    } else if (role == "system") {
      const std::string text = read_texts(*content, fields.path("content"), unknown_);
      if (!text.empty()) add_text(role, text);
    } else {
      throw wrong_value(fields.path("role"), role, "user or assistant");
    }
    fields.report_unknown();
  }
  void add_text(const std::string& role, const std::string& text) {
    messages_.push_back({{"role", role}, {"content", text}});
  }
  Json take() { return std::move(messages_); }

 private:
  void add_user_text(const std::string& text) {
    if (messages_.empty() || messages_.back()["role"] != "user") return add_text("user", text);
    append_line(messages_.back()["content"].get_ref<std::string&>(), text);
  }

  void add_user(const Json& content, const std::string& path) {
    if (content.is_string()) return add_user_text(content.get<std::string>());
    if (!content.is_array() || content.empty())
      throw wrong_value(path, content, "a string or an array of blocks");
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string place = fmt::format("{}[{}]", path, i);
      JsonFields fields(content[i], place, unknown_);
      const std::string type = fields.required_text("type");
      fields.any("cache_control");
      if (type == "text") {
        add_user_text(fields.required_text("text"));
        fields.any("citations");
      } else if (type == "tool_result") {
        add_result(fields);
      } else {
        refuse_block(place, type, "\"text\" or \"tool_result\"");
      }
      fields.report_unknown();
    }
  }

  /// Templates know no failed results, so the text says so.
  void add_result(JsonFields& fields) {
    const std::string id = fields.required_text("tool_use_id");
    const Json* content = fields.any("content");
    std::string text = content == nullptr ? "" : read_texts(*content, fields.path("content"), unknown_);
    if (fields.boolean("is_error").value_or(false)) text.insert(0, "Error: ");
    Json message{{"role", "tool"}, {"content", text}, {"tool_call_id", id}};
    if (const auto found = functions_.find(id); found != functions_.end()) message["name"] = found->second;
    messages_.push_back(std::move(message));
  }

  void add_assistant(const Json& content, const std::string& path) {
    if (content.is_string()) return add_text("assistant", content.get<std::string>());
    if (!content.is_array()) throw wrong_value(path, content, "a string or an array of blocks");
    std::string text;
    std::string reasoning;
    Json calls = Json::array();
    for (size_t i = 0; i < content.size(); ++i) {
      const std::string place = fmt::format("{}[{}]", path, i);
      JsonFields fields(content[i], place, unknown_);
      const std::string type = fields.required_text("type");
      fields.any("cache_control");
      if (std::ranges::find(kWithoutText, type) != kWithoutText.end()) {
        unknown_.add(place, type);
        continue;
      }
      if (type == "text") {
        append_line(text, fields.required_text("text"));
        fields.any("citations");
      } else if (type == "thinking") {
        append_line(reasoning, fields.required_text("thinking"));
        fields.any("signature");
      } else if (type == "redacted_thinking") {
        fields.any("data");  // which nobody here can read
      } else if (type == "tool_use") {
        calls.push_back(read_call(fields));
      } else {
        refuse_block(place, type, "\"text\", \"thinking\" or \"tool_use\"");
      }
      fields.report_unknown();
    }
    Json message{{"role", "assistant"}, {"content", text}};
    if (text.empty() && !calls.empty()) message["content"] = nullptr;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    messages_.push_back(std::move(message));
  }

  Json read_call(JsonFields& fields) {
    const std::string id = fields.required_text("id");
    const std::string name = fields.required_text("name");
    const Json* input = fields.object("input");
    fields.any("caller");
    functions_[id] = name;
    Json call{{"id", id}, {"type", "function"}};
    call["function"]["name"] = name;
    call["function"]["arguments"] = input == nullptr ? Json::object() : *input;
    return call;
  }

  UnknownFields& unknown_;
  Json messages_ = Json::array();
  std::map<std::string, std::string> functions_;
};

void add_tool(Json& tools, const Json& tool, const std::string& path, UnknownFields& unknown) {
  JsonFields fields(tool, path, unknown);
  if (const std::string type = fields.text("type").value_or("custom"); type != "custom")
    return unknown.add(path, type);
  const std::string name = fields.required_text("name");
  fields.text("description");
  const Json* schema = fields.object("input_schema");
  if (schema == nullptr) throw fields.error("input_schema", "missing, expected an object");
  for (const char* advice : {"cache_control", "strict", "eager_input_streaming", "defer_loading"})
    fields.any(advice);
  fields.report_unknown();
  tools.push_back(make_tool(name, path, fields.any("description"), schema));
}

}  // namespace

Json read_messages_chat(JsonFields& fields) {
  MessagesReader reader(fields.unknown());
  if (const Json* system = fields.any("system")) {
    if (const std::string text = read_texts(*system, "system", fields.unknown()); !text.empty())
      reader.add_text("system", text);
  }
  const Json& list = fields.required_array("messages");
  if (list.empty()) throw fields.error("messages", "empty, expected at least one message");
  for (size_t i = 0; i < list.size(); ++i)
    reader.add(list[i], fmt::format("messages[{}]", i));
  Json messages = reader.take();
  if (messages.empty()) throw fields.error("messages", "empty, expected at least one with a text");
  return messages;
}

Json read_messages_tools(const Json& list, int32_t max_tools, UnknownFields& unknown) {
  check_num_tools(list, max_tools);
  Json tools = Json::array();
  for (size_t i = 0; i < list.size(); ++i)
    add_tool(tools, list[i], fmt::format("tools[{}]", i), unknown);
  return tools;
}

}  // namespace minfer
