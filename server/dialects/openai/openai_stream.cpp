// Streamed responses. An event is put together from text that is made once a request and
// a little new text: at thousands of tokens a second, this is a token's cost on the host.
#include <utility>

#include "server/dialects/openai/openai_body.h"
#include "server/dialects/openai/openai_response.h"

namespace minfer {
namespace {

constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string_view object_name(const Dialect& dialect) {
  return dialect.is_chat ? "chat.completion.chunk" : "text_completion";
}

}  // namespace

StreamWriter::StreamWriter(const CompletionRequest& request, const ResponseIdentity& identity,
                           const ApiContext& context)
    : request_(request),
      tokenizer_(*context.tokenizer),
      usage_(request),
      num_unfinished_(request.num_choices()) {
  for (int32_t i = 0; i < request.num_choices(); ++i)
    choices_.push_back({first_offsets(request, tokenizer_, i), make_parsed_choice(request, context)});
  head_ = "data: ";
  JsonText json(head_);
  head_ += '{';
  write_head(json, request, identity, context.system_fingerprint, object_name(*request.dialect));
  json.key("choices").open('[');
  before_index_ = head_ + "{\"index\":";
}

void StreamWriter::append(int32_t index, const RequestOutput& output, std::string& events) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (finished_ || choice.finished) return;
  if (const std::optional<ApiError> failure = failure_of(output)) {
    append_error(*failure, events);
    return;
  }
  usage_.add(index, output);
  if (!choice.started && request_.dialect->is_chat) append_role(index, events);
  if (choice.parsed) {
    append_parsed(index, output, events);
  } else {
    append_delta(index, output, events);
  }
  choice.started = true;
  choice.finished = output.finish || (choice.parsed && choice.parsed->reader.end());
  if (choice.finished && --num_unfinished_ == 0) append_end(events);
}

void StreamWriter::append_error(const ApiError& error, std::string& events) {
  if (finished_) return;
  events += "data: ";
  events += error_json(error);
  events += "\n\n";
  events += kDone;
  finished_ = true;
}

void StreamWriter::append_role(int32_t index, std::string& events) const {
  events += before_index_;
  JsonText(events).value(index);
  events += R"(,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null)";
  append_after_choice(index, events);
}

void StreamWriter::append_delta(int32_t index, const RequestOutput& output, std::string& events) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  const bool is_chat = request_.dialect->is_chat;
  JsonText json(events);
  events += before_index_;
  json.value(index);
  events += is_chat ? ",\"delta\":{\"content\":" : ",\"text\":";
  if (!choice.started && request_.echo) {
    json.value(request_.prompt_text_of(index) + output.text);
  } else {
    json.value(output.text);
  }
  events += is_chat ? "},\"logprobs\":" : ",\"logprobs\":";
  if (request_.sampling.prompt_logprobs >= 0) {
    write_completion_logprobs(json, tokenizer_, shown_tokens(request_, index, output), choice.offsets);
  } else if (output.logprobs.empty()) {
    events += "null";
  } else if (is_chat) {
    write_chat_logprobs(json, tokenizer_, output.logprobs);
  } else {
    write_completion_logprobs(json, tokenizer_, output.logprobs, choice.offsets);
  }
  events += output.finish ? finish_json(request_, tokenizer_, output) : ",\"finish_reason\":null";
  append_after_choice(index, events);
}

/// An event for each delta, the first with the logprobs of the output's tokens, and one for the end.
void StreamWriter::append_parsed(int32_t index, const RequestOutput& output, std::string& events) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  ParsedChoice& parsed = *choice.parsed;
  std::vector<ChatDelta> deltas;
  parsed.reader.read(output, deltas);
  if (parsed.reader.reasoning_tokens() >= 0) usage_.set_reasoning(index, parsed.reader.reasoning_tokens());
  std::string logprobs;
  JsonText json(logprobs);
  if (!output.logprobs.empty()) write_chat_logprobs(json, tokenizer_, output.logprobs);
  for (const ChatDelta& delta : deltas) {
    parsed.parts.add(delta);
    const std::string text = delta_json(request_, delta, parsed.parts, choice.input);
    if (!text.empty()) append_parsed_event(index, text, std::exchange(logprobs, {}), {}, events);
  }
  std::string finish;
  if (const std::optional<AnswerEnd>& end = parsed.reader.end()) {
    finish = finish_json(request_, tokenizer_, output, end);
    if (problem_.empty()) problem_ = parsed.reader.problem();
  }
  const std::string rest =
      parsed.reader.end() ? rest_json(request_, parsed.parts, choice.input) : std::string();
  if (!finish.empty() || !logprobs.empty()) append_parsed_event(index, rest, logprobs, finish, events);
}

void StreamWriter::append_parsed_event(int32_t index, const std::string& delta, const std::string& logprobs,
                                       const std::string& finish, std::string& events) const {
  events += before_index_;
  JsonText(events).value(index);
  events += ",\"delta\":{";
  events += delta;
  events += "},\"logprobs\":";
  events += logprobs.empty() ? "null" : logprobs;
  events += finish.empty() ? ",\"finish_reason\":null" : finish;
  append_after_choice(index, events);
}

void StreamWriter::append_after_choice(int32_t index, std::string& events) const {
  events += "}]";
  JsonText json(events);
  if (request_.include_usage) json.key("usage");
  if (request_.continuous_usage) {
    write_usage(json, usage_.of(index));
  } else if (request_.include_usage) {
    json.null();
  }
  if (request_.timings) write_timings(json, usage_.of(index));
  events += "}\n\n";
}

void StreamWriter::append_end(std::string& events) {
  if (request_.include_usage) {
    events += head_;
    events += "],\"usage\":";
    JsonText json(events);
    write_usage(json, usage_.total());
    if (request_.timings) write_timings(json, usage_.total());
    events += "}\n\n";
  }
  events += kDone;
  finished_ = true;
}

}  // namespace minfer
