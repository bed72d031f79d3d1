#include <utility>

#include <nlohmann/json.hpp>

#include "profiling/json/json_text.h"
#include "server/api/answer/answer_writer.h"
#include "server/dialects/anthropic/messages.h"

namespace minfer {
namespace {

void write_stop(JsonText& json, AnswerEnd end, const std::string& stop_string) {
  constexpr const char* kReasons[] = {"end_turn", "max_tokens", "stop_sequence", "tool_use"};  // by AnswerEnd
  json.field("stop_reason", kReasons[static_cast<size_t>(end)]).key("stop_sequence");
  stop_string.empty() ? json.null() : json.value(stop_string);
}

/// Cached tokens are not part of input_tokens here.
void write_messages_usage(JsonText& json, const Usage& usage) {
  json.key("usage").open('{').field("input_tokens", usage.prompt_tokens - usage.cached_tokens);
  json.field("cache_creation_input_tokens", 0).field("cache_read_input_tokens", usage.cached_tokens);
  json.field("output_tokens", usage.completion_tokens).close('}');
}

void write_message_head(JsonText& json, const CompletionRequest& request, const ResponseIdentity& identity) {
  json.field("id", identity.id).field("type", "message");
  json.field("role", "assistant").field("model", request.model);
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
      json.key("message").open('{');
      write_message_head(json, request_, identity_);
      json.key("content").open('[').close(']').key("stop_reason").null().key("stop_sequence").null();
      write_messages_usage(json, usage());
      json.close('}');
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
    JsonText json(out);
    json.open('{');
    write_message_head(json, request_, identity_);
    json.key("content").open('[');
    for (const AnswerPart& part : parts())
      write_block(json, out, part, true, identity_.id);
    json.close(']');
    write_stop(json, end, stop_string_);
    write_messages_usage(json, usage());
    if (request_.timings) write_timings(json, usage());
    json.close('}');
    return out;
  }

 private:
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
