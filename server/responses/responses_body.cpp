#include "server/responses/responses_body.h"

#include <algorithm>
#include <utility>

#include <nlohmann/json.hpp>

#include "models/chat/answer/custom_input.h"
#include "server/openai/openai_body.h"
#include "server/openai/openai_chat.h"
#include "server/responses/response_store.h"
#include "server/responses/responses_request.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

void write_responses_usage(JsonText& json, const Usage& usage) {
  json.open('{').field("input_tokens", usage.prompt_tokens);
  json.key("input_tokens_details").open('{').field("cached_tokens", usage.cached_tokens);
  json.field("cache_write_tokens", 0).close('}').field("output_tokens", usage.completion_tokens);
  json.key("output_tokens_details").open('{');
  json.field("reasoning_tokens", std::max<int64_t>(usage.reasoning_tokens, 0)).close('}');
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens).close('}');
}

/// The assistant's turn as a message for the template.
Json message_of(const std::vector<AnswerPart>& parts, const ToolNames& custom_tools) {
  std::string content;
  std::string reasoning;
  Json calls = Json::array();
  for (const AnswerPart& part : parts) {
    if (part.kind == AnswerPart::Kind::call) {
      Json call{{"id", part.id}, {"type", "function"}};
      call["function"]["name"] = part.name;
      call["function"]["arguments"] = custom_tools.contains(part.name)
                                          ? Json{{kCustomInput, custom_input(part.text, part.whole)}}
                                          : read_arguments(part.text);
      calls.push_back(std::move(call));
    } else {
      (part.kind == AnswerPart::Kind::reasoning ? reasoning : content) += part.text;
    }
  }
  Json message{{"role", "assistant"}, {"content", content}};
  if (content.empty() && !calls.empty()) message["content"] = nullptr;
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  if (!calls.empty()) message["tool_calls"] = std::move(calls);
  return message;
}

}  // namespace

ResponsesBody::ResponsesBody(const CompletionRequest& request, ResponseIdentity identity,
                             const ApiContext& context)
    : request_(request), identity_(std::move(identity)), store_(context.responses) {}

std::string ResponsesBody::unfinished(const std::vector<AnswerPart>& parts) {
  return text("in_progress", parts, "null", "null", nullptr);
}

std::string ResponsesBody::failed(const std::vector<AnswerPart>& parts, const ApiError& error) {
  std::string written;
  JsonText(written)
      .open('{')
      .field("code", std::string_view("server_error"))
      .field("message", std::string_view(error.what()))
      .close('}');
  return text("failed", parts, written, "null", nullptr);
}

std::string ResponsesBody::finished(const std::vector<AnswerPart>& parts, AnswerEnd end, const Usage& usage) {
  const bool is_cut = end == AnswerEnd::length;
  std::string body = text(is_cut ? "incomplete" : "completed", parts, "null",
                          is_cut ? R"({"reason":"max_output_tokens"})" : "null", &usage);
  if (request_.responses->store) keep(body, parts);
  return body;
}

void ResponsesBody::write_item(JsonText& json, const std::vector<AnswerPart>& parts, size_t index,
                               bool begins) {
  const AnswerPart& part = parts[index];
  const char* status = begins ? "in_progress" : part.whole ? "completed" : "incomplete";
  json.open('{').field("id", item_id(parts, index));
  if (part.kind == AnswerPart::Kind::call) {
    const bool is_custom = is_custom_call(part);
    json.field("type", std::string_view(is_custom ? "custom_tool_call" : "function_call"));
    json.field("call_id", part.id);
    const auto spaced = request_.responses->spaces.find(part.name);
    json.field("name", function_name(part));
    if (spaced != request_.responses->spaces.end()) json.field("namespace", spaced->second.space);
    if (is_custom) {
      json.field("input", begins ? std::string() : custom_input(part.text, part.whole));
    } else {
      json.field("arguments", begins ? std::string() : part.text);
    }
  } else {
    const bool is_message = part.kind == AnswerPart::Kind::content;
    json.field("type", std::string_view(is_message ? "message" : "reasoning"));
    is_message ? json.field("role", std::string_view("assistant")) : json.key("summary").open('[').close(']');
    json.key("content").open('[');
    if (!begins) write_content(json, part, part.text);
    json.close(']');
  }
  json.field("status", std::string_view(status)).close('}');
}

void ResponsesBody::write_content(JsonText& json, const AnswerPart& part, std::string_view text) const {
  json.open('{');
  if (part.kind == AnswerPart::Kind::content) {
    json.field("type", std::string_view("output_text")).field("text", text);
    json.key("annotations").open('[').close(']').key("logprobs").open('[').close(']');
  } else {
    json.field("type", std::string_view("reasoning_text")).field("text", text);
  }
  json.close('}');
}

bool ResponsesBody::is_custom_call(const AnswerPart& part) const {
  return part.kind == AnswerPart::Kind::call && request_.custom_tools.contains(part.name);
}

const std::string& ResponsesBody::function_name(const AnswerPart& part) const {
  const auto spaced = request_.responses->spaces.find(part.name);
  return spaced == request_.responses->spaces.end() ? part.name : spaced->second.name;
}

const std::string& ResponsesBody::item_id(const std::vector<AnswerPart>& parts, size_t index) {
  while (item_ids_.size() <= index)
    item_ids_.push_back(ids_.draw(item_prefix(parts[item_ids_.size()])));
  return item_ids_[index];
}

std::string_view ResponsesBody::item_prefix(const AnswerPart& part) const {
  if (part.kind == AnswerPart::Kind::call) return is_custom_call(part) ? "ctc_" : "fc_";
  return part.kind == AnswerPart::Kind::reasoning ? "rs_" : "msg_";
}

std::string ResponsesBody::text(std::string_view status, const std::vector<AnswerPart>& parts,
                                const std::string& error, const std::string& incomplete_details,
                                const Usage* usage) {
  std::string text;
  JsonText json(text);
  json.open('{').field("id", identity_.id).field("object", std::string_view("response"));
  json.field("created_at", identity_.created).field("status", status).key("background").value(false);
  text += ",\"error\":" + error + ",\"incomplete_details\":" + incomplete_details;
  json.field("model", request_.model);
  text += request_.responses->members;
  json.key("output").open('[');
  for (size_t i = 0; i < parts.size(); ++i)
    write_item(json, parts, i, false);
  json.close(']').key("usage");
  usage == nullptr ? void(json.null()) : write_responses_usage(json, *usage);
  if (request_.timings && usage != nullptr) write_timings(json, *usage);
  json.close('}');
  return text;
}

void ResponsesBody::keep(const std::string& body, const std::vector<AnswerPart>& parts) const {
  const Json answer = message_of(parts, request_.custom_tools);
  store_->put(identity_.id, {body, request_.responses->history,
                             answer.dump(-1, ' ', false, Json::error_handler_t::replace)});
}

}  // namespace minfer
