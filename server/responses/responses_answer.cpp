#include "server/responses/responses_answer.h"

#include "models/chat/answer/custom_input.h"
#include "server/answer/single_answer.h"
#include "server/responses/responses_body.h"

namespace minfer {
namespace {

constexpr std::string_view kCallIds = "call_";

class ResponsesStream final : public SingleStream {
 public:
  ResponsesStream(const CompletionRequest& request, const ResponseIdentity& identity,
                  const ApiContext& context)
      : SingleStream(request, context, kCallIds), body_(request, identity, context) {}

 private:
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

  void end(AnswerEnd end, const std::string&, std::string& events) override {
    add_response(end == AnswerEnd::length ? "response.incomplete" : "response.completed",
                 body_.finished(parts(), end, usage()), events);
  }

  /// Before the response has begun nobody knows it: the error stands alone.
  void fail(const ApiError& error, std::string& events) override {
    if (begun_) return add_response("response.failed", body_.failed(parts(), error), events);
    begin_numbered("error", events);
    JsonText json(events);
    json.field("code", error.type()).field("message", std::string_view(error.what())).key("param").null();
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
  /// Which part of which item an event is about.
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

class ResponsesAnswer final : public SingleAnswer {
 public:
  ResponsesAnswer(const CompletionRequest& request, const ResponseIdentity& identity,
                  const ApiContext& context)
      : SingleAnswer(request, context, kCallIds), body_(request, identity, context) {}

 private:
  std::string body(AnswerEnd end, const std::string&) override {
    return body_.finished(parts(), end, usage());
  }

  ResponsesBody body_;
};

}  // namespace

std::unique_ptr<AnswerStream> make_responses_stream(const CompletionRequest& request,
                                                    const ResponseIdentity& identity,
                                                    const ApiContext& context) {
  return std::make_unique<ResponsesStream>(request, identity, context);
}

std::unique_ptr<WholeAnswer> make_responses_answer(const CompletionRequest& request,
                                                   const ResponseIdentity& identity,
                                                   const ApiContext& context) {
  return std::make_unique<ResponsesAnswer>(request, identity, context);
}

}  // namespace minfer
