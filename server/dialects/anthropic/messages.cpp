// POST /v1/messages and /v1/messages/count_tokens.
#include "server/dialects/anthropic/messages.h"

#include <array>
#include <map>
#include <optional>
#include <utility>

#include "models/chat/answer/values/literals.h"
#include "profiling/json/json_text.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/fields/json_fields.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/request_fields.h"

namespace minfer {
namespace {

/// True for calls and results of another server's tools, which cannot be read here: web
/// searches are encrypted, and tool searches find tools that are offered anyway.
bool has_no_text(std::string_view type) {
  return type == "server_tool_use" || type == "web_search_tool_result" || type == "tool_search_tool_result";
}

/// A reference to a tool says its name. The model sees all tools from the beginning, so that adding one says nothing.
constexpr std::pair<std::string_view, std::string_view> kBlockTexts[] = {
    {"text", "text"}, {"tool_reference", "tool_name"}, {"tool_addition", ""}};
constexpr std::string_view kBlocks = "a string or an array of blocks";
constexpr std::array<std::string_view, 3> kBlockAdvice{"citations", "cache_control", "tool"};

std::string read_blocks(JsonFields& fields, std::string_view name) {
  return read_texts(fields, name, kBlockTexts, kBlockAdvice);
}

/// One conversation: the messages so far, and the functions by the ids of their calls, which templates name with results.
class MessagesReader {
 public:
  void add(JsonFields& fields) {
    const std::string role = fields.required_text("role");
    const Json& content = fields.required("content", kBlocks);
    if (role != "system" && !content.is_string() && !content.is_array())
      throw wrong_value(fields.path("content"), content, kBlocks);
    if (role == "user") {
      add_user(fields, content);
    } else if (role == "assistant") {
      add_assistant(fields, content);
    } else if (role == "system") {
      const std::string text = read_blocks(fields, "content");
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
    join_line(messages_.back()["content"].get_ref<std::string&>(), text);
  }

  void add_user(JsonFields& fields, const Json& content) {
    if (content.is_string()) return add_user_text(content.get<std::string>());
    if (content.empty()) throw wrong_value(fields.path("content"), content, kBlocks);
    fields.each("content", [&](JsonFields& block) {
      const std::string type = block.required_text("type");
      block.any("cache_control");
      if (type == "text") {
        add_user_text(block.required_text("text"));
        block.any("citations");
      } else if (type == "tool_result") {
        add_result(block);
      } else {
        refuse_part(block.path(), type, "\"text\" or \"tool_result\"");
      }
    });
  }

  /// Templates know no failed results, so the text says so.
  void add_result(JsonFields& fields) {
    const std::string id = fields.required_text("tool_use_id");
    std::string text = fields.any("content") == nullptr ? "" : read_blocks(fields, "content");
    if (fields.boolean("is_error").value_or(false)) text.insert(0, "Error: ");
    Json message{{"role", "tool"}, {"content", text}, {"tool_call_id", id}};
    if (const auto found = functions_.find(id); found != functions_.end()) message["name"] = found->second;
    messages_.push_back(std::move(message));
  }

  void add_assistant(JsonFields& fields, const Json& content) {
    if (content.is_string()) return add_text("assistant", content.get<std::string>());
    std::string text;
    std::string reasoning;
    Json calls = Json::array();
    fields.each("content", [&](JsonFields& block) {
      const std::string type = block.required_text("type");
      block.any("cache_control");
      if (has_no_text(type)) {
        block.unknown().add(block.path(), type);
        block.ignore_rest();
      } else if (type == "text") {
        join_line(text, block.required_text("text"));
        block.any("citations");
      } else if (type == "thinking") {
        join_line(reasoning, block.required_text("thinking"));
        block.any("signature");
      } else if (type == "redacted_thinking") {
        block.any("data");  // which nobody here can read
      } else if (type == "tool_use") {
        calls.push_back(read_call(block));
      } else {
        refuse_part(block.path(), type, "\"text\", \"thinking\" or \"tool_use\"");
      }
    });
    messages_.push_back(make_assistant_message(text, reasoning, std::move(calls)));
  }

  Json read_call(JsonFields& fields) {
    const std::string id = fields.required_text("id");
    const std::string name = fields.required_text("name");
    const Json* input = fields.object("input");
    fields.any("caller");
    functions_[id] = name;
    return make_call(id, name, input == nullptr ? Json::object() : *input);
  }

  Json messages_ = Json::array();
  std::map<std::string, std::string> functions_;
};

/// system and messages for the template: blocks of text joined by line ends, tool_use as calls, tool_result as messages
/// of the role "tool", thinking as reasoning_content. Neighbouring user messages are joined, as Anthropic's server does.
Json read_messages_chat(JsonFields& fields) {
  MessagesReader reader;
  const std::string system = fields.any("system") == nullptr ? "" : read_blocks(fields, "system");
  if (!system.empty()) reader.add_text("system", system);
  fields.each_required("messages", "message", [&](JsonFields& message) { reader.add(message); });
  Json messages = reader.take();
  if (messages.empty()) throw fields.error("messages", "empty, expected at least one with a text");
  return messages;
}

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
  JsonFields* const choice = fields.inner("tool_choice");
  if (choice == nullptr) return;
  const std::string type = choice->required_choice("type", {"auto", "any", "tool", "none"});
  if (type == "none") prompt.tool_choice.kind = ToolChoice::Kind::none;
  if (type == "any") prompt.tool_choice.kind = ToolChoice::Kind::required;
  if (type == "tool") prompt.tool_choice = {ToolChoice::Kind::named, {choice->required_text("name")}};
  prompt.parsing.one_call = choice->boolean("disable_parallel_tool_use").value_or(false);
}

/// The template decides if the model thinks: its switch is the variable enable_thinking.
/// The number of tokens for thinking (budget_tokens) cannot be bounded.
void read_thinking(JsonFields& fields, ChatPrompt& prompt) {
  JsonFields* const thinking = fields.inner("thinking");
  if (thinking == nullptr) return;
  const std::string type = thinking->required_choice("type", {"enabled", "disabled", "adaptive"});
  if (type != "adaptive") {
    prompt.variables["enable_thinking"] = type == "enabled";
    prompt.set_by.emplace_back("enable_thinking", "thinking");
  }
  thinking->any("budget_tokens");
  prompt.parsing.shows_reasoning = thinking->text("display") != "omitted";
}

void read_output_config(JsonFields& fields, ChatPrompt& prompt) {
  JsonFields* const config = fields.inner("output_config");
  if (config == nullptr) return;
  if (const std::optional<std::string> effort = config->text("effort"))
    set_reasoning_effort(prompt, *effort == "max" ? "xhigh" : *effort, "output_config.effort");
  prompt.output = read_text_format(*config, "format");
}

/// The fields that decide the prompt: model, system, messages, tools, tool_choice, thinking, output_config.
ChatPrompt read_messages_prompt(JsonFields& fields, const ApiContext& context) {
  ChatPrompt prompt;
  Json messages = read_messages_chat(fields);
  read_messages_tool_choice(fields, prompt);
  read_tools(fields, kMessagesTools, context, prompt);
  // An answer continues a last message of the assistant.
  const Json& last = messages.back();
  const bool goes_on = last["role"] == "assistant" && !last.contains("tool_calls") &&
                       !answers::trimmed(last["content"].get_ref<const std::string&>()).empty();
  if (goes_on) prompt.continued_text = last["content"].get<std::string>();
  prompt.variables["add_generation_prompt"] = !goes_on;
  prompt.variables["messages"] = std::move(messages);
  read_thinking(fields, prompt);
  read_output_config(fields, prompt);
  prompt.output = read_structured_output(fields, std::move(prompt.output));
  // Advice to a server that keeps, bills or routes by it: without effect here.
  fields.ignore({"metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics",
                 "user_profile_id"});
  fields.refuse({"mcp_servers"});
  return prompt;
}

/// `end` absent: the answer goes on.
void write_stop(JsonText& json, std::optional<AnswerEnd> end, const std::string& stop_string) {
  constexpr const char* kReasons[] = {"end_turn", "max_tokens", "stop_sequence", "tool_use"};  // by AnswerEnd
  json.key("stop_reason");
  end ? json.value(kReasons[static_cast<size_t>(*end)]) : json.null();
  json.key("stop_sequence");
  stop_string.empty() ? json.null() : json.value(stop_string);
}

/// Cached tokens are not part of input_tokens here.
void write_messages_usage(JsonText& json, const Usage& usage) {
  json.key("usage").open('{').field("input_tokens", usage.prompt_tokens - usage.cached_tokens);
  json.field("cache_creation_input_tokens", 0).field("cache_read_input_tokens", usage.cached_tokens);
  json.field("output_tokens", usage.completion_tokens).close('}');
}

/// A block with its text, or as it begins. Thoughts are signed with the answer's id: clients send back none without a signature.
void write_block(JsonText& json, std::string& out, const AnswerPart& part, bool whole,
                 std::string_view signature) {
  json.open('{');
  if (part.kind == AnswerPart::Kind::call) {
    json.field("type", "tool_use").field("id", part.id).field("name", part.name);
    json.key("input");
    out += whole ? object_or_empty(part.text) : "{}";
  } else if (part.kind == AnswerPart::Kind::reasoning) {
    json.field("type", "thinking").field("thinking", whole ? part.text : std::string{});
    json.field("signature", whole ? signature : std::string_view());
  } else {
    json.field("type", "text").field("text", whole ? part.text : std::string{});
  }
  json.close('}');
}

class MessagesWriter final : public SingleWriter {
 public:
  using SingleWriter::SingleWriter;

  void begin(std::string& events) override {
    add_event("message_start", events, [&](JsonText& json) {
      json.key("message");
      write_message(events, {});
    });
    add_event("ping", events, [](JsonText&) {});
  }

  void begin_part(std::string& events) override {
    add_event("content_block_start", events, [&](JsonText& json) {
      json.field("index", index()).key("content_block");
      write_block(json, events, parts().back(), false, {});
    });
    before_text_ = delta_head(parts().back().kind);
  }

  void add_text(std::string_view text, std::string& events) override {
    events += before_text_;
    JsonText(events).value(text);
    events += "}}\n\n";
  }

  void end_part(std::string& events) override {
    if (parts().back().kind == AnswerPart::Kind::reasoning) {
      before_text_ = delta_head("signature_delta", "signature");
      add_text(identity_.id, events);
    }
    add_event("content_block_stop", events, [&](JsonText& json) { json.field("index", index()); });
  }

  void end(AnswerEnd end, std::string& events) override {
    add_event("message_delta", events, [&](JsonText& json) {
      json.key("delta").open('{');
      write_stop(json, end, stop_string_);
      json.close('}');
      write_messages_usage(json, usage());
      if (request_.timings) write_timings(json, usage());
    });
    add_event("message_stop", events, [](JsonText&) {});
  }

  void fail(const ApiError& error, std::string& events) override {
    events += "event: error\ndata: " + messages_error_json(error) + "\n\n";
  }

  std::string body(AnswerEnd end) override {
    std::string out;
    write_message(out, end);
    return out;
  }

 private:
  void write_message(std::string& out, std::optional<AnswerEnd> end) const {
    JsonText json(out);
    json.open('{').field("id", identity_.id).field("type", "message");
    json.field("role", "assistant").field("model", request_.model).key("content").open('[');
    for (const AnswerPart& part : parts())
      write_block(json, out, part, true, identity_.id);
    json.close(']');
    write_stop(json, end, stop_string_);
    write_messages_usage(json, usage());
    if (request_.timings && end) write_timings(json, usage());
    json.close('}');
  }

  std::string delta_head(std::string_view type, std::string_view member) const {
    std::string text;
    begin_event("content_block_delta", text);
    JsonText json(text);
    json.field("index", index());
    json.key("delta").open('{').field("type", type).key(member);
    return text;
  }
  std::string delta_head(AnswerPart::Kind kind) const {
    if (kind == AnswerPart::Kind::call) return delta_head("input_json_delta", "partial_json");
    return kind == AnswerPart::Kind::reasoning ? delta_head("thinking_delta", "thinking")
                                               : delta_head("text_delta", "text");
  }

  std::string before_text_;  ///< of the part's deltas
};

std::string_view messages_error_type(int status) {
  constexpr std::pair<int, std::string_view> kTypes[] = {
      {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"},
      {413, "request_too_large"},    {429, "rate_limit_error"}, {503, "overloaded_error"}};
  for (const auto& [of, type] : kTypes)
    if (of == status) return type;
  return status >= 500 ? "api_error" : "invalid_request_error";
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
  read.end_fields();
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

std::string messages_error_json(const ApiError& error) {
  return dump_json({{"type", "error"},
                    {"error", {{"type", messages_error_type(error.status())}, {"message", error.what()}}}});
}

constexpr Endpoint kMessagesEndpoints[] = {{"POST", "/v1/messages/count_tokens", count_tokens_response}};

const Dialect kMessagesDialect{.path = "/v1/messages",
                               .id_prefix = "msg_",
                               .prompt_field = "messages",
                               .id_header = "request-id",  // as Anthropic's clients look for it
                               .call_prefix = "toolu_",
                               .parse = parse_messages_request,
                               .answer = make_answer<MessagesWriter>,
                               .error = messages_error_json,
                               .others = kMessagesEndpoints};

}  // namespace minfer
