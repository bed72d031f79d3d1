#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "models/chat/answer/custom_input.h"
#include "profiling/json/json_text.h"
#include "server/api/answer/answer_reader.h"
#include "server/api/answer/single_answer.h"
#include "server/api/answer/usage.h"
#include "server/api/request/chat_prompt.h"
#include "server/dialects/responses/response_store.h"
#include "server/dialects/responses/responses_request.h"

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
      calls.push_back(make_call(part.id, part.name,
                                custom_tools.contains(part.name)
                                    ? Json{{kCustomInput, custom_input(part.text, part.whole)}}
                                    : read_arguments(part.text)));
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

/// The object of one response of /v1/responses and its items, and the part that is
/// kept. `request` and the objects that the context points to outlive it. One thread.
class ResponsesBody {
 public:
  ResponsesBody(const CompletionRequest& request, ResponseIdentity identity, const ApiContext& context)
      : request_(request), identity_(std::move(identity)), store_(context.responses) {}

  /// The response while it is under way, with its items so far.
  std::string unfinished(const std::vector<AnswerPart>& parts) {
    return text("in_progress", parts, "null", "null", nullptr);
  }

  std::string failed(const std::vector<AnswerPart>& parts, const ApiError& error) {
    std::string written;
    JsonText(written).open('{').field("code", "server_error").field("message", error.what()).close('}');
    return text("failed", parts, written, "null", nullptr);
  }

  /// The response at its end. Keeps it if the request wants that.
  std::string finished(const std::vector<AnswerPart>& parts, AnswerEnd end, const Usage& usage) {
    const bool is_cut = end == AnswerEnd::length;
    std::string body = text(is_cut ? "incomplete" : "completed", parts, "null",
                            is_cut ? R"({"reason":"max_output_tokens"})" : "null", &usage);
    if (request_.responses->store) keep(body, parts);
    return body;
  }

  /// The item of a part: as it begins, or with all of its text.
  void write_item(JsonText& json, const std::vector<AnswerPart>& parts, size_t index, bool begins) {
    const AnswerPart& part = parts[index];
    const char* status = begins ? "in_progress" : part.whole ? "completed" : "incomplete";
    json.open('{').field("id", item_id(parts, index));
    if (part.kind == AnswerPart::Kind::call) {
      const bool is_custom = is_custom_call(part);
      json.field("type", is_custom ? "custom_tool_call" : "function_call");
      json.field("call_id", part.id);
      const auto spaced = request_.responses->spaces.find(part.name);
      json.field("name", function_name(part));
      if (spaced != request_.responses->spaces.end()) json.field("namespace", spaced->second.first);
      if (is_custom) {
        json.field("input", begins ? std::string() : custom_input(part.text, part.whole));
      } else {
        json.field("arguments", begins ? std::string() : part.text);
      }
    } else {
      const bool is_message = part.kind == AnswerPart::Kind::content;
      json.field("type", is_message ? "message" : "reasoning");
      is_message ? json.field("role", "assistant") : json.key("summary").open('[').close(']');
      json.key("content").open('[');
      if (!begins) write_content(json, part, part.text);
      json.close(']');
    }
    json.field("status", status).close('}');
  }

  /// The only content part of an item that is not a call.
  void write_content(JsonText& json, const AnswerPart& part, std::string_view text) const {
    json.open('{');
    if (part.kind == AnswerPart::Kind::content) {
      json.field("type", "output_text").field("text", text);
      json.key("annotations").open('[').close(']').key("logprobs").open('[').close(']');
    } else {
      json.field("type", "reasoning_text").field("text", text);
    }
    json.close('}');
  }

  /// True if a part is a call of a custom tool, which brings a text instead of arguments.
  bool is_custom_call(const AnswerPart& part) const {
    return part.kind == AnswerPart::Kind::call && request_.custom_tools.contains(part.name);
  }

  /// The name of a call's tool as the client knows it, without its namespace.
  const std::string& function_name(const AnswerPart& part) const {
    const auto spaced = request_.responses->spaces.find(part.name);
    return spaced == request_.responses->spaces.end() ? part.name : spaced->second.second;
  }

  const std::string& item_id(const std::vector<AnswerPart>& parts, size_t index) {
    while (item_ids_.size() <= index)
      item_ids_.push_back(ids_.draw(item_prefix(parts[item_ids_.size()])));
    return item_ids_[index];
  }

 private:
  std::string_view item_prefix(const AnswerPart& part) const {
    if (part.kind == AnswerPart::Kind::call) return is_custom_call(part) ? "ctc_" : "fc_";
    return part.kind == AnswerPart::Kind::reasoning ? "rs_" : "msg_";
  }

  std::string text(std::string_view status, const std::vector<AnswerPart>& parts, const std::string& error,
                   const std::string& incomplete_details, const Usage* usage) {
    std::string text;
    JsonText json(text);
    json.open('{').field("id", identity_.id).field("object", "response");
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

  void keep(const std::string& body, const std::vector<AnswerPart>& parts) const {
    const Json answer = message_of(parts, request_.custom_tools);
    store_->put(identity_.id, {body, request_.responses->history,
                               answer.dump(-1, ' ', false, Json::error_handler_t::replace)});
  }

  const CompletionRequest& request_;
  const ResponseIdentity identity_;
  ResponseStore* const store_;
  IdSource ids_;
  std::vector<std::string> item_ids_;
};

class ResponsesWriter final : public SingleWriter {
 public:
  explicit ResponsesWriter(const SingleChoice& choice)
      : SingleWriter(choice), body_(choice.request, choice.identity, choice.context) {}

  void begin(std::string& events) override {
    for (const char* type : {"response.created", "response.in_progress"})
      add_response(type, body_.unfinished({}), events);
    begun_ = true;
  }

  void begin_part(std::string& events) override {
    begin_numbered("response.output_item.added", events);
    JsonText json(events);
    json.field("output_index", index()).key("item");
    body_.write_item(json, parts(), parts().size() - 1, true);
    events += kEventEnd;
    if (!is_call()) add_content("response.content_part.added", "", events);
    before_number_.clear();
    begin_event(delta_type(), before_number_);
    before_number_ += ",\"sequence_number\":";
    input_ = {};
    before_text_.clear();
    write_place(before_text_);
    JsonText(before_text_).key("delta");
  }

  void add_text(std::string_view text, std::string& events) override {
    is_custom_call() ? add_delta(input_.push(text), events) : add_delta(text, events);
  }

  void end_part(std::string& events) override {
    const AnswerPart& part = parts().back();
    if (is_custom_call()) add_delta(input_.finish(part.whole), events);
    begin_numbered(done_type(), events);
    write_place(events);
    JsonText json(events);
    if (is_custom_call()) {
      json.field("input", custom_input(part.text, part.whole));
    } else {
      json.field(is_call() ? "arguments" : "text", part.text);
      if (is_call()) json.field("name", body_.function_name(part));
    }
    if (is_message()) events += ",\"logprobs\":[]";
    events += kEventEnd;
    if (!is_call()) add_content("response.content_part.done", part.text, events);
    begin_numbered("response.output_item.done", events);
    json.field("output_index", index()).key("item");
    body_.write_item(json, parts(), parts().size() - 1, false);
    events += kEventEnd;
  }

  void end(AnswerEnd end, std::string& events) override {
    add_response(end == AnswerEnd::length ? "response.incomplete" : "response.completed",
                 body_.finished(parts(), end, usage()), events);
  }

  /// Before the response has begun, the client does not know it: the error stands alone.
  void fail(const ApiError& error, std::string& events) override {
    if (begun_) return add_response("response.failed", body_.failed(parts(), error), events);
    begin_numbered("error", events);
    JsonText json(events);
    json.field("code", error.type()).field("message", error.what()).key("param").null();
    events += kEventEnd;
  }

  std::string body(AnswerEnd end) override { return body_.finished(parts(), end, usage()); }

 private:
  void add_delta(std::string_view text, std::string& events) {
    if (text.empty()) return;
    events += before_number_;
    JsonText json(events);
    json.value(number_++);
    events += before_text_;
    json.value(text);
    if (is_message()) events += ",\"logprobs\":[]";
    events += kEventEnd;
  }

  void begin_numbered(std::string_view type, std::string& events) {
    begin_event(type, events);
    JsonText(events).field("sequence_number", number_++);
  }
  void add_response(std::string_view type, const std::string& response, std::string& events) {
    begin_numbered(type, events);
    events += ",\"response\":" + response;
    events += kEventEnd;
  }
  /// The members that say which part of which item an event is about.
  void write_place(std::string& text) {
    JsonText json(text);
    text += ",\"item_id\":";
    json.value(body_.item_id(parts(), parts().size() - 1)).field("output_index", index());
    if (!is_call()) json.field("content_index", 0);
  }
  void add_content(std::string_view type, std::string_view text, std::string& events) {
    begin_numbered(type, events);
    write_place(events);
    JsonText json(events);
    json.key("part");
    body_.write_content(json, parts().back(), text);
    events += kEventEnd;
  }

  int64_t index() const { return static_cast<int64_t>(parts().size()) - 1; }
  bool is_call() const { return parts().back().kind == AnswerPart::Kind::call; }
  bool is_custom_call() const { return body_.is_custom_call(parts().back()); }
  bool is_message() const { return parts().back().kind == AnswerPart::Kind::content; }
  std::string_view delta_type() const {
    if (is_custom_call()) return "response.custom_tool_call_input.delta";
    if (is_call()) return "response.function_call_arguments.delta";
    return is_message() ? "response.output_text.delta" : "response.reasoning_text.delta";
  }
  std::string_view done_type() const {
    if (is_custom_call()) return "response.custom_tool_call_input.done";
    if (is_call()) return "response.function_call_arguments.done";
    return is_message() ? "response.output_text.done" : "response.reasoning_text.done";
  }

  ResponsesBody body_;
  CustomInput input_;  ///< of the open part, if it is a call of a custom tool
  bool begun_ = false;
  int64_t number_ = 0;         ///< of the next event
  std::string before_number_;  ///< of the open part's deltas
  std::string before_text_;    ///< the same, from there on
};

}  // namespace

constexpr Endpoint kStoredResponses[] = {
    {"GET", "/v1/responses/",
     [](std::string_view id, const ApiContext& context, UnknownFields&) {
       const auto stored = context.responses->find(std::string(id));
       if (!stored) throw response_not_found(id, {});
       return stored->body;
     }},
    {"DELETE", "/v1/responses/", [](std::string_view id, const ApiContext& context, UnknownFields&) {
       if (!context.responses->erase(std::string(id))) throw response_not_found(id, {});
       std::string text;
       JsonText json(text);
       json.open('{').field("id", id).field("object", "response");
       json.field("deleted", true).close('}');
       return text;
     }}};

const Dialect kResponsesDialect{.path = "/v1/responses",
                                .id_prefix = "resp_",
                                .prompt_field = "input",
                                .guards_ids = true,
                                .parse = parse_responses_request,
                                .writer = make_writer<ResponsesWriter>,
                                .takes_long = has_long_history,
                                .others = kStoredResponses};

}  // namespace minfer
