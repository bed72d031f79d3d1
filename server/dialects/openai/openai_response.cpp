// Answers, whole and streamed. An event is put together from text that is made once a request and
// a little new text: at thousands of tokens a second, this is a token's cost on the host.
#include "server/dialects/openai/openai_response.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/openai/completions.h"
#include "server/dialects/openai/openai_tokenize.h"

namespace minfer {
namespace {

constexpr size_t kPieceBytes = 64u << 10;

constexpr std::string_view kDone = "data: [DONE]\n\n";

std::string_view object_name(const Dialect& dialect) {
  return dialect.is_chat ? "chat.completion.chunk" : "text_completion";
}

}  // namespace

ResponseBuilder::ResponseBuilder(const CompletionRequest& request, ResponseIdentity identity,
                                 const ApiContext& context)
    : request_(request),
      identity_(std::move(identity)),
      tokenizer_(*context.tokenizer),
      system_fingerprint_(context.system_fingerprint),
      usage_(request),
      choices_(static_cast<size_t>(request.num_choices())),
      num_unfinished_(request.num_choices()) {
  for (Choice& choice : choices_)
    choice.parsed = make_parsed_choice(request, context);
  for (int32_t i = 0; request.echo && i < request.num_choices(); ++i)
    choices_[static_cast<size_t>(i)].text = request.prompt_text_of(i);
}

void ResponseBuilder::add(int32_t index, RequestOutput output) {
  if (ended(index)) return;
  if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
  usage_.add(index, output);
  Choice& choice = choices_[static_cast<size_t>(index)];
  if (choice.parsed) {
    add_parsed(index, choice, output);
  } else {
    choice.text += output.text;
  }
  if (output.finish && choice.finish.empty()) {
    choice.finish = finish_json(request_, tokenizer_, output);
    --num_unfinished_;
  }
  std::ranges::move(shown_tokens(request_, index, std::move(output)), std::back_inserter(choice.logprobs));
}

void ResponseBuilder::add_parsed(int32_t index, Choice& choice, const RequestOutput& output) {
  std::vector<ChatDelta> deltas;
  AnswerReader& reader = choice.parsed->reader;
  reader.read(output, deltas);
  for (const ChatDelta& delta : deltas)
    choice.parsed->parts.add(delta);
  if (reader.reasoning_tokens() >= 0) usage_.set_reasoning(index, reader.reasoning_tokens());
  if (!reader.end()) return;
  choice.finish = finish_json(request_, tokenizer_, output, reader.end());
  if (problem_.empty()) problem_ = reader.problem();
  --num_unfinished_;
}

std::string ResponseBuilder::next_piece() {
  while (!written() && text_.size() <= kPieceBytes)
    write_next();
  // The last character decides if a comma comes next: it stays for the next piece.
  const size_t size = text_.size() - (written() ? 0 : 1);
  std::string piece = std::exchange(text_, text_.substr(size));
  piece.resize(size);
  return piece;
}

void ResponseBuilder::write_next() {
  JsonText json(text_);
  switch (next_part_) {
    case Part::head:
      json.open('{');
      write_head(json, request_, identity_, system_fingerprint_,
                 request_.dialect->is_chat ? "chat.completion" : "text_completion");
      json.key("choices").open('[');
      next_part_ = Part::choice;
      return;
    case Part::choice:
      return write_choice(json);
    case Part::logprobs:
      if (!logprobs_->write_next(json)) end_choice(json);
      return;
    case Part::tail:
      json.close(']').key("usage");
      write_usage(json, usage_.total());
      if (request_.timings) write_timings(json, usage_.total());
      json.close('}');
      next_part_ = Part::none;
      return;
    case Part::none:
      return;
  }
}

void ResponseBuilder::write_choice(JsonText& json) {
  const Choice& choice = choices_[static_cast<size_t>(next_choice_)];
  const bool is_chat = request_.dialect->is_chat;
  json.open('{').field("index", next_choice_);
  if (choice.parsed) {
    json.key("message");
    write_message(json, request_, choice.parsed->parts);
  } else if (is_chat) {
    json.key("message").open('{').field("role", std::string_view("assistant"));
    json.field("content", choice.text).key("refusal").null().close('}');
  } else {
    json.field("text", choice.text);
  }
  json.key("logprobs");
  if (request_.sampling.logprobs < 0) {
    json.null();
    return end_choice(json);
  }
  if (!is_chat) offsets_ = first_offsets(request_, tokenizer_, next_choice_);
  logprobs_.emplace(tokenizer_, choice.logprobs, is_chat ? nullptr : &*offsets_);
  next_part_ = Part::logprobs;
}

void ResponseBuilder::end_choice(JsonText& json) {
  Choice& choice = choices_[static_cast<size_t>(next_choice_)];
  text_ += choice.finish;
  json.close('}');
  logprobs_.reset();
  choice = {};
  next_part_ = ++next_choice_ < request_.num_choices() ? Part::choice : Part::tail;
}

const Dialect kCompletionsDialect{.path = "/v1/completions",
                                  .id_prefix = "cmpl-",
                                  .prompt_field = "prompt",
                                  .is_chat = false,
                                  .parse = parse_completion_request,
                                  .stream = make_answer<AnswerStream, StreamWriter>,
                                  .whole = make_answer<WholeAnswer, ResponseBuilder>,
                                  .others = kOpenAiEndpoints};

const Dialect kChatDialect{.path = "/v1/chat/completions",
                           .id_prefix = "chatcmpl-",
                           .prompt_field = "messages",
                           .parse = parse_chat_request,
                           .stream = make_answer<AnswerStream, StreamWriter>,
                           .whole = make_answer<WholeAnswer, ResponseBuilder>};

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
