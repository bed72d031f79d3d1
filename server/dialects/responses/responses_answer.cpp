#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/chat/answer/custom_input.h"
#include "profiling/json/json_text.h"
#include "server/api/answer/answer_writer.h"
#include "server/api/request/chat_prompt.h"
#include "server/dialects/responses/response_store.h"
#include "server/dialects/responses/responses_request.h"

namespace minfer {
namespace {

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
      calls.push_back(make_call(
          part.id, part.name,
          custom_tools.contains(part.name) ? Json{{kCustomInput, part.text}} : read_arguments(part.text)));
    } else {
      (part.kind == AnswerPart::Kind::reasoning ? reasoning : content) += part.text;
    }
  }
  return make_assistant_message(content, reasoning, std::move(calls));
}

/// The names of a kind of items.
struct ItemForm {
  const char* type;
  const char* id_prefix;
  const char* member;  ///< its text
  const char* event;   ///< of that text: response.EVENT.delta and .done; also the type of its content part
};
constexpr ItemForm kMessageForm{"message", "msg_", "text", "output_text"};
constexpr ItemForm kReasoningForm{"reasoning", "rs_", "text", "reasoning_text"};
constexpr ItemForm kCallForm{"function_call", "fc_", "arguments", "function_call_arguments"};
constexpr ItemForm kCustomCallForm{"custom_tool_call", "ctc_", "input", "custom_tool_call_input"};

class ResponsesWriter final : public SingleWriter {
 public:
  using SingleWriter::SingleWriter;

  void begin(std::string& events) override {
    for (const char* type : {"response.created", "response.in_progress"})
      add_response(type, response("in_progress"), events);
    begun_ = true;
  }

  void begin_part(std::string& events) override {
    add("response.output_item.added", events, [&](JsonText& json) { write_last_item(json, true); });
    if (!is_call()) add_content("response.content_part.added", "", events);
    before_number_.clear();
    begin_event(text_event("delta"), before_number_);
    before_number_ += ",\"sequence_number\":";
    before_text_.clear();
    write_place(before_text_);
    JsonText(before_text_).key("delta");
  }

  void add_text(std::string_view text, std::string& events) override {
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
    add(text_event("done"), events, [&](JsonText& json) {
      write_place(events);
      json.field(form_of(part).member, part.text);
      if (&form_of(part) == &kCallForm) json.field("name", function_name(part));
      if (is_message()) events += ",\"logprobs\":[]";
    });
    if (!is_call()) add_content("response.content_part.done", part.text, events);
    add("response.output_item.done", events, [&](JsonText& json) { write_last_item(json, false); });
  }

  void end(AnswerEnd end, std::string& events) override {
    add_response(end == AnswerEnd::length ? "response.incomplete" : "response.completed", body(end), events);
  }

  /// Before the response has begun, the client does not know it: the error stands alone.
  void fail(const ApiError& error, std::string& events) override {
    if (begun_) {
      std::string written;
      JsonText(written).open('{').field("code", "server_error").field("message", error.what()).close('}');
      return add_response("response.failed", response("failed", written), events);
    }
    add("error", events, [&](JsonText& json) {
      json.field("code", error.type()).field("message", error.what()).key("param").null();
    });
  }

  /// Keeps the response if the request wants that.
  std::string body(AnswerEnd end) override {
    std::string body = response(end == AnswerEnd::length ? "incomplete" : "completed");
    if (request_.responses->store) {
      const Json answer = message_of(parts(), request_.custom_tools);
      context_.responses->put(identity_.id, {body, request_.responses->history, dump_json(answer)});
    }
    return body;
  }

 private:
  /// The object of the response with its items so far, and with its usage once it has ended.
  std::string response(std::string_view status, const std::string& error = "null") {
    const bool is_cut = status == "incomplete", has_ended = is_cut || status == "completed";
    std::string text;
    JsonText json(text);
    json.open('{').field("id", identity_.id).field("object", "response");
    json.field("created_at", identity_.created).field("status", status).field("background", false);
    text += ",\"error\":" + error + ",\"incomplete_details\":";
    text += is_cut ? R"({"reason":"max_output_tokens"})" : "null";
    json.field("model", request_.model);
    text += request_.responses->members;
    json.key("output").open('[');
    for (size_t i = 0; i < parts().size(); ++i)
      write_item(json, i, false);
    json.close(']').key("usage");
    has_ended ? write_responses_usage(json, usage()) : void(json.null());
    if (request_.timings && has_ended) write_timings(json, usage());
    json.close('}');
    return text;
  }

  /// The item of a part: as it begins, or with all of its text.
  void write_item(JsonText& json, size_t place, bool begins) {
    const AnswerPart& part = parts()[place];
    json.open('{').field("id", item_id(place)).field("type", form_of(part).type);
    if (part.kind == AnswerPart::Kind::call) {
      json.field("call_id", part.id).field("name", function_name(part));
      const auto spaced = request_.responses->spaces.find(part.name);
      if (spaced != request_.responses->spaces.end()) json.field("namespace", spaced->second.first);
      json.field(form_of(part).member, begins ? std::string_view() : part.text);
    } else {
      part.kind == AnswerPart::Kind::content ? json.field("role", "assistant")
                                             : json.key("summary").open('[').close(']');
      json.key("content").open('[');
      if (!begins) write_content(json, part, part.text);
      json.close(']');
    }
    json.field("status", begins ? "in_progress" : part.whole ? "completed" : "incomplete").close('}');
  }

  void write_last_item(JsonText& json, bool begins) {
    json.field("output_index", index()).key("item");
    write_item(json, parts().size() - 1, begins);
  }

  /// The only content part of an item that is not a call.
  void write_content(JsonText& json, const AnswerPart& part, std::string_view text) const {
    json.open('{').field("type", form_of(part).event).field("text", text);
    if (part.kind == AnswerPart::Kind::content)
      json.key("annotations").open('[').close(']').key("logprobs").open('[').close(']');
    json.close('}');
  }

  /// An event with its number.
  template <class Write>
  void add(std::string_view type, std::string& events, const Write& write) {
    add_event(type, events, [&](JsonText& json) {
      json.field("sequence_number", number_++);
      write(json);
    });
  }
  void add_response(std::string_view type, const std::string& response, std::string& events) {
    add(type, events, [&](JsonText&) { events += ",\"response\":" + response; });
  }
  /// The members that say which part of which item an event is about.
  void write_place(std::string& text) {
    JsonText json(text);
    text += ",\"item_id\":";
    json.value(item_id(parts().size() - 1)).field("output_index", index());
    if (!is_call()) json.field("content_index", 0);
  }
  void add_content(std::string_view type, std::string_view text, std::string& events) {
    add(type, events, [&](JsonText& json) {
      write_place(events);
      json.key("part");
      write_content(json, parts().back(), text);
    });
  }

  bool is_call() const { return parts().back().kind == AnswerPart::Kind::call; }
  bool is_message() const { return parts().back().kind == AnswerPart::Kind::content; }
  const ItemForm& form_of(const AnswerPart& part) const {
    if (part.kind == AnswerPart::Kind::content) return kMessageForm;
    if (part.kind == AnswerPart::Kind::reasoning) return kReasoningForm;
    return request_.custom_tools.contains(part.name) ? kCustomCallForm : kCallForm;
  }
  /// The name of a call's tool as the client knows it, without its namespace.
  const std::string& function_name(const AnswerPart& part) const {
    const auto spaced = request_.responses->spaces.find(part.name);
    return spaced == request_.responses->spaces.end() ? part.name : spaced->second.second;
  }
  const std::string& item_id(size_t place) {
    while (item_ids_.size() <= place)
      item_ids_.push_back(draw_id(form_of(parts()[item_ids_.size()]).id_prefix));
    return item_ids_[place];
  }
  /// The type of the last part's events of text; `what`: "delta" or "done".
  std::string text_event(std::string_view what) const {
    return fmt::format("response.{}.{}", form_of(parts().back()).event, what);
  }

  std::vector<std::string> item_ids_;
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
       return dump_json({{"id", id}, {"object", "response"}, {"deleted", true}});
     }}};

const Dialect kResponsesDialect{.path = "/v1/responses",
                                .id_prefix = "resp_",
                                .prompt_field = "input",
                                .guards_ids = true,
                                .parse = parse_responses_request,
                                .answer = make_answer<ResponsesWriter>,
                                .takes_long = has_long_history,
                                .others = kStoredResponses};

}  // namespace minfer
