// POST /v1/messages and /v1/messages/count_tokens.
#include <array>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "profiling/json/json_text.h"
#include "server/api/fields/json_body.h"
#include "server/api/request/chat_prompt.h"
#include "server/api/request/held_answer.h"
#include "server/api/request/request_fields.h"
#include "server/dialects/anthropic/messages.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// Advice to a server that keeps, bills or routes by it: without effect here.
constexpr std::array<std::string_view, 7> kMessagesAdvice{
    "metadata", "service_tier", "cache_control", "inference_geo", "speed", "diagnostics", "user_profile_id"};

void read_messages_tool_choice(JsonFields& fields, ChatPrompt& prompt) {
  const Json* object = fields.object("tool_choice");
  if (object == nullptr) return;
  JsonFields choice(*object, "tool_choice", fields.unknown());
  const std::string type = choice.required_text("type");
  if (type == "auto" || type == "none") {
    prompt.tool_choice.kind = type == "none" ? ToolChoice::Kind::none : ToolChoice::Kind::automatic;
  } else if (type == "any") {
    prompt.tool_choice.kind = ToolChoice::Kind::required;
  } else if (type == "tool") {
    prompt.tool_choice = {ToolChoice::Kind::named, {choice.required_text("name")}};
  } else {
    throw wrong_value("tool_choice.type", type, "auto, any, tool or none");
  }
  prompt.one_call = choice.boolean("disable_parallel_tool_use").value_or(false);
  choice.report_unknown();
}

/// The template decides if the model thinks: its switch is the variable enable_thinking.
/// The number of tokens for thinking (budget_tokens) cannot be bounded.
void read_thinking(JsonFields& fields, ChatPrompt& prompt) {
  const Json* object = fields.object("thinking");
  if (object == nullptr) return;
  JsonFields thinking(*object, "thinking", fields.unknown());
  const std::string type = thinking.required_text("type");
  if (type == "enabled" || type == "disabled") {
    prompt.variables["enable_thinking"] = type == "enabled";
    prompt.set_by.emplace_back("enable_thinking", "thinking");
  } else if (type != "adaptive") {
    throw wrong_value("thinking.type", type, "enabled, disabled or adaptive");
  }
  thinking.any("budget_tokens");
  const std::string display = thinking.text("display").value_or("summarized");
  prompt.shows_reasoning = display != "omitted";
  thinking.report_unknown();
}

void read_output_config(JsonFields& fields, ChatPrompt& prompt) {
  const Json* object = fields.object("output_config");
  if (object == nullptr) return;
  JsonFields config(*object, "output_config", fields.unknown());
  if (const std::optional<std::string> effort = config.text("effort"))
    set_reasoning_effort(prompt, *effort == "max" ? "xhigh" : *effort, "output_config.effort");
  prompt.output = read_text_format(config, "format");
  config.report_unknown();
}

/// The fields that decide the prompt: model, system, messages, tools, tool_choice, thinking, output_config.
ChatPrompt read_messages_prompt(JsonFields& fields, const ApiContext& context) {
  ChatPrompt prompt;
  Json messages = read_messages_chat(fields);
  read_messages_tool_choice(fields, prompt);
  if (const Json* tools = fields.array("tools"); tools != nullptr && !tools->empty()) {
    Json checked = read_messages_tools(*tools, context.limits.max_tools, fields.unknown());
    prompt.strict_tools = strict_tool_names(*tools);
    if (!checked.empty() && prompt.tool_choice.kind != ToolChoice::Kind::none)
      prompt.variables["tools"] = std::move(checked);
  }
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
  JsonFields& fields = read.fields;
  UnknownFields& unknown = read.unknown;
  CompletionRequest& request = read.request;
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
  std::string text;
  JsonText json(text);
  json.open('{').field("input_tokens",
                       static_cast<int64_t>(tokenise_chat(prompt, context, unknown).tokens.size()));
  json.close('}');
  return text;
}

}  // namespace minfer
