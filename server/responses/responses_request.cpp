// POST /v1/responses.
#include "server/responses/responses_request.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "models/gguf/printable.h"
#include "profiling/json/json_text.h"
#include "server/openai/json_body.h"
#include "server/openai/openai_chat.h"
#include "server/openai/openai_fields.h"
#include "server/responses/response_store.h"
#include "server/responses/responses_input.h"
#include "server/responses/responses_tools.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

/// Advice to a server that keeps, bills, routes or cuts by it, or that runs tools: without effect here.
constexpr std::array<std::string_view, 9> kResponsesAdvice{"user",
                                                           "safety_identifier",
                                                           "prompt_cache_key",
                                                           "prompt_cache_retention",
                                                           "prompt_cache_options",
                                                           "service_tier",
                                                           "truncation",
                                                           "max_tool_calls",
                                                           "moderation"};

constexpr std::array<std::string_view, 3> kResponsesUnsupported{"conversation", "prompt", "background"};

void refuse_responses_fields(JsonFields& fields) {
  for (const std::string_view name : kResponsesUnsupported) {
    const Json* value = fields.any(name);
    const bool is_off = value == nullptr || *value == false || (value->is_array() && value->empty());
    if (!is_off) throw unsupported(name, fmt::format("{}: not supported by this server", name));
  }
  constexpr const char* kLogprobs = "message.output_text.logprobs";
  const Json* include = fields.array("include");
  const bool wants_logprobs = include != nullptr && std::ranges::find(*include, kLogprobs) != include->end();
  if (wants_logprobs || fields.integer("top_logprobs", 0, INT32_MAX).value_or(0) > 0)
    throw unsupported("top_logprobs", "top_logprobs: not supported here; /v1/chat/completions has them");
}

/// A member of an object that may be missing, as text.
std::string read_member(JsonFields& fields, std::string_view object_name, std::string_view name) {
  const Json* object = fields.object(object_name);
  if (object == nullptr) return {};
  JsonFields members(*object, std::string(object_name), fields.unknown());
  return members.text(name).value_or("");
}

std::optional<StructuredOutput> read_text_format(JsonFields& fields) {
  const Json* text = fields.object("text");
  if (text == nullptr) return std::nullopt;
  JsonFields members(*text, "text", fields.unknown());
  members.any("verbosity");
  std::optional<StructuredOutput> output = read_text_format(members, "format");
  members.report_unknown();
  return output;
}

Json read_history(JsonFields& fields, const ApiContext& context) {
  const std::optional<std::string> id = fields.text("previous_response_id");
  if (!id) return Json::array();
  const auto stored = context.responses == nullptr ? nullptr : context.responses->find(*id);
  if (!stored) throw response_not_found(*id, "previous_response_id");
  if (stored->history_bytes() > context.limits.max_history_bytes) {
    throw context_length_exceeded(
        "previous_response_id",
        fmt::format("previous_response_id: its conversation has {} bytes, expected at most {}",
                    stored->history_bytes(), context.limits.max_history_bytes));
  }
  return Json::parse(fmt::format("{},{}]", *stored->history, stored->answer));
}

std::string dumped(const Json* value) {
  return value == nullptr ? "null" : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// See StoredResponse.
std::shared_ptr<const std::string> history_text(const Json& messages) {
  std::string text = dumped(&messages);
  text.pop_back();
  return std::make_shared<const std::string>(std::move(text));
}

/// The members of the response that repeat the request's.
std::string echo_members(JsonFields& fields, const CompletionRequest& request, const ChatPrompt& prompt,
                         const Json& tools, bool store) {
  std::string text;
  const auto add = [&](std::string_view name, const std::string& value) {
    text += fmt::format(",\"{}\":{}", name, value);
  };
  const std::string effort = read_member(fields, "reasoning", "effort");
  const Json shown_effort = effort.empty() ? Json() : Json(effort);
  for (const char* name : {"instructions", "max_output_tokens", "previous_response_id", "user"})
    add(name, dumped(fields.any(name)));
  const Json* metadata = fields.any("metadata");
  add("metadata", metadata == nullptr ? "{}" : dumped(metadata));
  add("parallel_tool_calls", prompt.one_call ? "false" : "true");
  add("reasoning", fmt::format("{{\"effort\":{},\"summary\":null}}", dumped(&shown_effort)));
  add("store", store ? "true" : "false");
  add("temperature", fmt::format("{}", request.sampling.temperature));
  add("top_p", fmt::format("{}", request.sampling.top_p));
  const Json* given = fields.any("text");
  add("text", given == nullptr ? R"({"format":{"type":"text"}})" : dumped(given));
  const Json* choice = fields.any("tool_choice");
  add("tool_choice", choice == nullptr ? "\"auto\"" : dumped(choice));
  add("tools", dumped(&tools));
  add("truncation", "\"disabled\"");
  if (request.service_tier) add("service_tier", "\"default\"");
  return text;
}

}  // namespace

ApiError response_not_found(std::string_view id, std::string_view param) {
  return {404, "invalid_request_error",
          fmt::format("Response with id '{}' not found: this server has none of that id, or has dropped it",
                      printable(id)),
          std::string(param), "response_not_found"};
}

bool has_long_history(std::string_view body, const ApiContext& context) try {
  constexpr size_t kLongBytes = 64u << 10;  // as of a body, see HttpRequest::has_large_body()
  const Json root = parse_json_body(body);
  const auto id = root.find("previous_response_id");
  if (context.responses == nullptr || id == root.end() || !id->is_string()) return false;
  const auto stored = context.responses->find(id->get_ref<const std::string&>());
  return stored != nullptr && stored->history_bytes() > kLongBytes;
} catch (const std::exception&) {
  return false;  // which the request is then answered with
}

CompletionRequest parse_responses_request(std::string_view body, const ApiContext& context) {
  const Json root = parse_json_body(body);
  UnknownFields unknown(context.refuses_unknown_fields);
  JsonFields fields(root, {}, unknown);
  CompletionRequest request;
  request.endpoint = Endpoint::responses;
  request.model = read_model(fields, context);
  refuse_responses_fields(fields);
  read_sampling(fields, context, request.sampling);
  read_streaming(fields, context, request);
  const std::optional<int64_t> max_tokens = fields.integer("max_output_tokens", 1, INT32_MAX);
  for (const std::string_view name : kResponsesAdvice)
    fields.any(name);
  request.service_tier = fields.any("service_tier") != nullptr;

  auto kept = std::make_shared<ResponsesRequest>();
  kept->store = fields.boolean("store").value_or(true) && context.responses != nullptr;
  ResponsesTools tools(context);
  if (const Json* list = fields.array("tools")) tools.add(*list, "tools", unknown);
  const Json given_tools = tools.given();
  Json messages = read_responses_input(fields, read_history(fields, context), tools);
  if (kept->store) kept->history = history_text(messages);
  kept->spaces = tools.spaces();
  ChatPrompt prompt;
  prompt.variables["messages"] =
      with_instructions(fields.text("instructions").value_or(""), std::move(messages));
  prompt.variables["add_generation_prompt"] = true;
  prompt.tool_choice = read_tool_choice(fields, [&tools](std::string_view space, const std::string& name) {
    return tools.shown_name(space, name);
  });
  prompt.output = read_structured_output(fields, read_text_format(fields));
  prompt.strict_tools = tools.strict();
  prompt.custom_tools = tools.custom();
  prompt.input_grammars = tools.input_grammars();
  if (!tools.shown().empty() && prompt.tool_choice.kind != ToolChoice::Kind::none)
    prompt.variables["tools"] = tools.shown();
  prompt.one_call = !fields.boolean("parallel_tool_calls").value_or(true);
  set_reasoning_effort(prompt, read_member(fields, "reasoning", "effort"), "reasoning.effort");
  kept->members = echo_members(fields, request, prompt, given_tools, kept->store);
  fields.report_unknown();
  request.responses = std::move(kept);

  set_chat_prompt(request, prompt, context, unknown);
  settle_lengths(request, context, max_tokens, 0, INT32_MAX);
  return request;
}

}  // namespace minfer
