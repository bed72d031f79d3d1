// POST /v1/messages and /v1/messages/count_tokens.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/anthropic/messages.h"

namespace minfer {
namespace {

/// Calls and results of another server's tools, which cannot be read here: web
/// searches are encrypted, and tool searches find tools that are offered anyway.
constexpr std::array<std::string_view, 3> kWithoutText{"server_tool_use", "web_search_tool_result",
                                                       "tool_search_tool_result"};

/// A reference to a tool says its name. The model sees all tools from the beginning, so that adding one says nothing.
constexpr std::pair<std::string_view, std::string_view> kBlockTexts[] = {
    {"text", "text"}, {"tool_reference", "tool_name"}, {"tool_addition", ""}};
constexpr std::array<std::string_view, 3> kBlockAdvice{"citations", "cache_control", "tool"};

std::string read_blocks(const Json& content, const std::string& path, UnknownFields& unknown) {
  return read_texts(content, path, kBlockTexts, kBlockAdvice, unknown);
}

/// One conversation: the messages so far, and the functions by the ids of their calls, which templates name with results.
class MessagesReader {
 public:
  explicit MessagesReader(UnknownFields& unknown) : unknown_(unknown) {}

  void add(JsonFields& fields) {
    const std::string role = fields.required_text("role");
    const Json& content = fields.required("content", "a string or an array of blocks");
    if (role == "user") {
      add_user(content, fields.path("content"));
    } else if (role == "assistant") {
      add_assistant(content, fields.path("content"));
    } else if (role == "system") {
      const std::string text = read_blocks(content, fields.path("content"), unknown_);
      if (!text.empty()) add_text(role, text);
    } else {
      throw wrong_value(fields.path("role"), role, "user or assistant");
    }
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
    read_objects(content, path, unknown_, [&](JsonFields& fields) {
      const std::string type = fields.required_text("type");
      fields.any("cache_control");
      if (type == "text") {
        add_user_text(fields.required_text("text"));
        fields.any("citations");
      } else if (type == "tool_result") {
        add_result(fields);
      } else {
        refuse_part(fields.path(), type, "\"text\" or \"tool_result\"");
      }
    });
  }

  /// Templates know no failed results, so the text says so.
  void add_result(JsonFields& fields) {
    const std::string id = fields.required_text("tool_use_id");
    const Json* content = fields.any("content");
    std::string text = content == nullptr ? "" : read_blocks(*content, fields.path("content"), unknown_);
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
    read_objects(content, path, unknown_, [&](JsonFields& fields) {
      const std::string type = fields.required_text("type");
      fields.any("cache_control");
      if (std::ranges::find(kWithoutText, type) != kWithoutText.end()) {
        unknown_.add(fields.path(), type);
        fields.ignore_rest();
      } else if (type == "text") {
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
        refuse_part(fields.path(), type, "\"text\", \"thinking\" or \"tool_use\"");
      }
    });
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
    return make_call(id, name, input == nullptr ? Json::object() : *input);
  }

  UnknownFields& unknown_;
  Json messages_ = Json::array();
  std::map<std::string, std::string> functions_;
};

/// system and messages for the template: blocks of text joined by line ends, tool_use as calls, tool_result as messages
/// of the role "tool", thinking as reasoning_content. Neighbouring user messages are joined, as Anthropic's server does.
Json read_messages_chat(JsonFields& fields) {
  MessagesReader reader(fields.unknown());
  if (const Json* system = fields.any("system")) {
    if (const std::string text = read_blocks(*system, "system", fields.unknown()); !text.empty())
      reader.add_text("system", text);
  }
  if (fields.required_array("messages").empty())
    throw fields.error("messages", "empty, expected at least one message");
  fields.each("messages", [&](JsonFields& message) { reader.add(message); });
  Json messages = reader.take();
  if (messages.empty()) throw fields.error("messages", "empty, expected at least one with a text");
  return messages;
}

/// Advice to a server that keeps, bills or routes by it: without effect here.
constexpr std::array<std::string_view, 7> kMessagesAdvice{
    "metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics", "user_profile_id"};

constexpr std::array<std::string_view, 3> kToolAdvice{"cache_control", "eager_input_streaming",
                                                      "defer_loading"};
/// Tools of other types are those that Anthropic's server runs itself, or whose schemas only its models know.
constexpr ToolShape kMessagesTools{.untyped = "custom",
                                   .function = "custom",
                                   .parameters = "input_schema",
                                   .needs_parameters = true,
                                   .has_custom = false,
                                   .advice = kToolAdvice};

void read_messages_tool_choice(JsonFields& fields, ChatPrompt& prompt) {
  std::optional<JsonFields> choice = fields.inner("tool_choice");
  if (!choice) return;
  const std::string type = choice->required_choice("type", {"auto", "any", "tool", "none"});
  if (type == "none") prompt.tool_choice.kind = ToolChoice::Kind::none;
  if (type == "any") prompt.tool_choice.kind = ToolChoice::Kind::required;
  if (type == "tool") prompt.tool_choice = {ToolChoice::Kind::named, {choice->required_text("name")}};
  prompt.parsing.one_call = choice->boolean("disable_parallel_tool_use").value_or(false);
  choice->report_unknown();
}

/// The template decides if the model thinks: its switch is the variable enable_thinking.
/// The number of tokens for thinking (budget_tokens) cannot be bounded.
void read_thinking(JsonFields& fields, ChatPrompt& prompt) {
  std::optional<JsonFields> thinking = fields.inner("thinking");
  if (!thinking) return;
  const std::string type = thinking->required_choice("type", {"enabled", "disabled", "adaptive"});
  if (type != "adaptive") {
    prompt.variables["enable_thinking"] = type == "enabled";
    prompt.set_by.emplace_back("enable_thinking", "thinking");
  }
  thinking->any("budget_tokens");
  prompt.parsing.shows_reasoning = thinking->text("display") != "omitted";
  thinking->report_unknown();
}

void read_output_config(JsonFields& fields, ChatPrompt& prompt) {
  std::optional<JsonFields> config = fields.inner("output_config");
  if (!config) return;
  if (const std::optional<std::string> effort = config->text("effort"))
    set_reasoning_effort(prompt, *effort == "max" ? "xhigh" : *effort, "output_config.effort");
  prompt.output = read_text_format(*config, "format");
  config->report_unknown();
}

/// The fields that decide the prompt: model, system, messages, tools, tool_choice, thinking, output_config.
ChatPrompt read_messages_prompt(JsonFields& fields, const ApiContext& context) {
  ChatPrompt prompt;
  Json messages = read_messages_chat(fields);
  read_messages_tool_choice(fields, prompt);
  read_tools(fields, kMessagesTools, context, prompt);
  // An answer continues a last message of the assistant.
  const Json& last = messages.back();
  const bool goes_on =
      last["role"] == "assistant" && !last.contains("tool_calls") &&
      last["content"].get_ref<const std::string&>().find_first_not_of(" \t\r\n") != std::string::npos;
  if (goes_on) prompt.continued_text = last["content"].get<std::string>();
  prompt.variables["add_generation_prompt"] = !goes_on;
  prompt.variables["messages"] = std::move(messages);
  read_thinking(fields, prompt);
  read_output_config(fields, prompt);
  prompt.output = read_structured_output(fields, std::move(prompt.output));
  for (const std::string_view name : kMessagesAdvice)
    fields.any(name);
  refuse_fields(fields, std::array<std::string_view, 1>{"mcp_servers"});
  return prompt;
}

}  // namespace

CompletionRequest parse_messages_request(std::string_view body, const ApiContext& context) {
  RequestBody read(kMessagesDialect, body, context);
  auto& [root, unknown, fields, options, request] = read;
  for (std::string& stop : read_stop_strings(fields, "stop_sequences", context.limits))
    request.sampling.stop.push_back(std::move(stop));
  const std::optional<int64_t> max_tokens = fields.integer("max_tokens", 1, INT32_MAX);
  if (!max_tokens) throw fields.error("max_tokens", "missing, expected an integer");
  const ChatPrompt prompt = read_messages_prompt(fields, context);
  fields.report_unknown();

  set_chat_prompt(request, prompt, context, unknown);
  settle_bound(request, context, *max_tokens);
  return std::move(request);
}

std::string count_tokens_response(std::string_view body, const ApiContext& context, UnknownFields& unknown) {
  const Json root = parse_json_body(body);
  JsonFields fields(root, {}, unknown);
  read_model(fields, context);
  const ChatPrompt prompt = read_messages_prompt(fields, context);
  fields.report_unknown();
  return dump_json({{"input_tokens", tokenise_chat(prompt, context, unknown).tokens.size()}});
}

}  // namespace minfer
