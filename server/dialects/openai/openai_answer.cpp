// Answers of /v1/completions and /v1/chat/completions, whole and streamed. An event is put together from text that is made once a
// request and a little new text: at thousands of tokens a second, this is a token's cost on the host.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "server/api/answer/answer_writer.h"
#include "server/dialects/openai/openai.h"
#include "server/dialects/openai/openai_logprobs.h"

namespace minfer {
namespace {

constexpr size_t kPieceBytes = 64u << 10;

/// {"prompt_tokens","completion_tokens","total_tokens","prompt_tokens_details":{"cached_tokens"}} and, where reasoning is looked for,
/// "completion_tokens_details":{"reasoning_tokens"}.
void write_usage(JsonText& json, const Usage& usage) {
  json.open('{').field("prompt_tokens", usage.prompt_tokens);
  json.field("completion_tokens", usage.completion_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").open('{').field("cached_tokens", usage.cached_tokens).close('}');
  if (usage.reasoning_tokens >= 0) {
    json.key("completion_tokens_details").open('{').field("reasoning_tokens", usage.reasoning_tokens);
    json.close('}');
  }
  json.close('}');
}

/// The stop token that the client named and the answer ended with, or -1.
TokenId named_stop_token(const SamplingParams& sampling, const Tokenizer& tokenizer,
                         const RequestOutput& output) {
  if (output.finish != FinishReason::stop || output.tokens.empty()) return -1;
  const TokenId last = output.tokens.back();
  if (!sampling.ignore_eos && tokenizer.is_end(last)) return -1;
  const bool named = std::ranges::find(sampling.stop_token_ids, last) != sampling.stop_token_ids.end();
  return named ? last : -1;
}

/// The members `,"finish_reason":...,"stop_reason":...` of the choice that `output` ends. stop_reason is vLLM's: the stop string
/// or the stop token's id that ended it, null for the model's own end and for length. `end`: the end of a parsed choice.
std::string finish_json(const CompletionRequest& request, const Tokenizer& tokenizer,
                        const RequestOutput& output, const std::optional<AnswerEnd>& end) {
  std::string text = ",\"finish_reason\":";
  JsonText json(text);
  json.value(end ? name(*end) : name(*output.finish)).key("stop_reason");
  const TokenId token = named_stop_token(request.sampling, tokenizer, output);
  if (!output.finish_detail.empty()) {
    json.value(output.finish_detail);
  } else {
    token >= 0 ? json.value(token) : json.null();
  }
  return text;
}

/// The members of the delta in a chat's stream for `delta`, which `parts` has taken. None: nothing is written.
void write_delta(JsonText& json, const CompletionRequest& request, const ChatDelta& delta,
                 const AnswerParts& parts) {
  using Kind = ChatDelta::Kind;
  if (delta.kind == Kind::content) return void(json.field("content", delta.text));
  if (delta.kind == Kind::reasoning) return void(json.field("reasoning_content", delta.text));
  if (delta.kind == Kind::call_end) return;
  const AnswerPart& call = parts.parts().back();
  const bool is_custom = request.custom_tools.contains(call.name), begins = delta.kind == Kind::call_begin;
  const std::string_view type = is_custom ? "custom" : "function";
  json.key("tool_calls").open('[').open('{').field("index", parts.num_calls() - 1);
  if (begins) json.field("id", call.id).field("type", type);
  json.key(type).open('{');
  if (begins) json.field("name", delta.text);
  const std::string_view more = begins ? std::string_view() : delta.text;
  json.field(is_custom ? "input" : "arguments", more).close('}').close('}').close(']');
}

/// {"role","content","refusal","reasoning_content","tool_calls"}, the last two only if there are some.
void write_message(JsonText& json, const CompletionRequest& request, const AnswerParts& parts) {
  const std::string content = parts.text(AnswerPart::Kind::content);
  const std::string reasoning = parts.text(AnswerPart::Kind::reasoning);
  json.open('{').field("role", "assistant").key("content");
  content.empty() && parts.num_calls() > 0 ? json.null() : json.value(content);
  json.key("refusal").null();
  if (!reasoning.empty()) json.field("reasoning_content", reasoning);
  if (parts.num_calls() > 0) json.key("tool_calls").open('[');
  for (const AnswerPart& part : parts.parts()) {
    if (part.kind != AnswerPart::Kind::call) continue;
    const bool is_custom = request.custom_tools.contains(part.name);
    const std::string_view type = is_custom ? "custom" : "function";
    json.open('{').field("id", part.id).field("type", type).key(type).open('{').field("name", part.name);
    json.field(is_custom ? "input" : "arguments", part.text).close('}').close('}');
  }
  if (parts.num_calls() > 0) json.close(']');
  json.close('}');
}

/// The first offsets of a completion's choice. An echoed prompt's text ends where its tokens'
/// text ends, but may begin behind the tokens' begin (the space in front of the first word, BOS).
TextOffsets first_offsets(const CompletionRequest& request, const Tokenizer& tokenizer, int32_t choice) {
  const bool with_special = !request.sampling.skip_special_tokens;
  if (request.sampling.prompt_logprobs < 0) return {tokenizer, with_special, 0};
  TextOffsets of_prompt(tokenizer, with_special, 0);
  for (const TokenId token : request.prompt_of(choice))
    of_prompt.push(token);
  return {tokenizer, with_special, count_characters(request.prompt_text_of(choice)) - of_prompt.next()};
}

/// Moves the tokens that a response shows, with their logprobs, out of an output. If the prompt
/// is echoed, the prompt's tokens come first; the very first has a logprob of NaN.
std::vector<SampledToken> shown_tokens(const CompletionRequest& request, int32_t choice,
                                       RequestOutput& output) {
  const bool is_first = output.output_tokens == static_cast<int32_t>(output.tokens.size());
  if (request.sampling.prompt_logprobs < 0 || !is_first) return std::move(output.logprobs);
  std::vector<SampledToken> tokens = std::move(output.prompt_logprobs);
  tokens.insert(tokens.begin(),
                {request.prompt_of(choice).front(), std::numeric_limits<float>::quiet_NaN(), {}});
  std::ranges::move(output.logprobs, std::back_inserter(tokens));
  return tokens;
}

/// Streamed, each output gives one event ("data: {...}\n\n"); of a parsed chat, each delta does, the first with the logprobs of the
/// output's tokens. In a chat, an event with the role precedes a choice's first event. After the last output of the last choice
/// come the usage, if asked for, and "data: [DONE]". A whole answer's parts are freed once they are written.
class OpenAiAnswer final : public AnswerWriter {
 public:
  OpenAiAnswer(const CompletionRequest& request, const ResponseIdentity& identity, const ApiContext& context,
               bool streams)
      : request_(request),
        is_chat_(request.dialect->is_chat),
        streams_(streams),
        tokenizer_(*context.tokenizer),
        usage_(request),
        choices_(static_cast<size_t>(request.num_choices())),
        num_unfinished_(request.num_choices()) {
    for (int32_t i = 0; i < request.num_choices(); ++i) {
      if (request.parsing.enabled) at(i).parsed = std::make_unique<ParsedChoice>(request, context);
      if (request.echo && !streams) at(i).text = request.prompt_text_of(i);
    }
    if (streams) head_ = "data: ";
    head_ += '{';
    JsonText json(head_);
    const std::string_view object = !is_chat_ ? "text_completion"
                                    : streams ? "chat.completion.chunk"
                                              : "chat.completion";
    json.field("id", identity.id).field("object", object).field("created", identity.created);
    json.field("model", request.model).field("system_fingerprint", context.system_fingerprint);
    if (request.service_tier) json.field("service_tier", "default");
    json.key("choices").open('[');
    before_index_ = head_ + "{\"index\":";
  }

  void take(int32_t index, RequestOutput output, std::string& events) override {
    if (ended(index)) return;
    if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
    Choice& choice = at(index);
    std::vector<ChatDelta> deltas;
    std::optional<AnswerEnd> end;
    if (choice.parsed) {
      AnswerReader& reader = choice.parsed->reader;
      reader.read(output, deltas);
      end = reader.end();
      if (end && problem_.empty()) problem_ = reader.problem();
    }
    usage_.add(index, output, choice.parsed ? choice.parsed->reader.reasoning_tokens() : -1);
    if (output.finish || end) choice.finish = finish_json(request_, tokenizer_, output, end);
    std::vector<SampledToken> tokens = shown_tokens(request_, index, output);
    if (streams_) {
      append_events(index, output.text, deltas, tokens, events);
    } else {
      if (!choice.parsed) choice.text += output.text;
      for (const ChatDelta& delta : deltas)
        choice.parsed->parts.add(delta);
      std::ranges::move(tokens, std::back_inserter(choice.logprobs));
    }
    if (!choice.finish.empty() && --num_unfinished_ == 0 && streams_) append_end(events);
  }
  void append_error(const ApiError& error, std::string& events) override {
    if (num_unfinished_ == 0) return;
    events += "data: " + error_json(error) + "\n\n" + kDone;
    num_unfinished_ = 0;
  }
  bool finished() const override { return num_unfinished_ == 0; }
  bool ended(int32_t choice) const override {
    return finished() || !choices_[static_cast<size_t>(choice)].finish.empty();
  }
  std::string problem() const override { return problem_; }

  bool next_piece(std::string& text) override {
    while (next_part_ != Part::none && head_.size() <= kPieceBytes)
      write_next();
    const bool is_last = next_part_ == Part::none;
    // The last character decides if a comma comes next: it stays for the next piece.
    const size_t size = head_.size() - (is_last ? 0 : 1);
    text.append(head_, 0, size);
    head_.erase(0, size);
    return !is_last;
  }

 private:
  struct Choice {
    std::string text;                      ///< a whole answer's if it is not parsed
    std::unique_ptr<ParsedChoice> parsed;  ///< null: all is content
    std::optional<TextOffsets> offsets;    ///< once the first logprobs are written
    std::vector<SampledToken> logprobs;    ///< of a whole answer
    bool started = false;                  ///< a stream: an event has been written
    std::string finish;                    ///< members that say why it ended; empty: it goes on
  };
  /// The part of a whole answer to write next.
  enum class Part : uint8_t { choice, logprobs, tail, none };
  static constexpr const char* kDone = "data: [DONE]\n\n";

  Choice& at(int32_t index) { return choices_[static_cast<size_t>(index)]; }
  LogprobsWriter logprobs_writer(int32_t index, std::span<const SampledToken> tokens) {
    std::optional<TextOffsets>& offsets = at(index).offsets;
    if (!is_chat_ && !offsets) offsets = first_offsets(request_, tokenizer_, index);
    return {tokenizer_, tokens, is_chat_ ? nullptr : &*offsets};
  }

  void append_events(int32_t index, const std::string& text, const std::vector<ChatDelta>& deltas,
                     std::span<const SampledToken> tokens, std::string& events) {
    Choice& choice = at(index);
    delta_.clear();
    logprobs_.clear();
    JsonText delta_json(delta_), logprobs_json(logprobs_);
    const bool is_first = !std::exchange(choice.started, true);
    if (is_first && is_chat_) append_event(index, R"("role":"assistant","content":"")", {}, events);
    if (!tokens.empty() || request_.sampling.prompt_logprobs >= 0)
      logprobs_writer(index, tokens).write_all(logprobs_json);
    if (!choice.parsed) {
      if (is_first && request_.echo) {
        delta_json.field("text", request_.prompt_text_of(index) + text);
      } else {
        delta_json.field(is_chat_ ? "content" : "text", text);
      }
      return append_event(index, delta_, choice.finish, events);
    }
    ParsedChoice& parsed = *choice.parsed;
    for (const ChatDelta& delta : deltas) {
      parsed.parts.add(delta);
      write_delta(delta_json, request_, delta, parsed.parts);
      if (delta_.empty()) continue;
      append_event(index, delta_, {}, events);
      delta_.clear();
      logprobs_.clear();
    }
    if (!choice.finish.empty() || !logprobs_.empty()) append_event(index, delta_, choice.finish, events);
  }

  /// An event of a choice with the members of its delta, logprobs_ and why it ended (empty: it goes on).
  void append_event(int32_t index, std::string_view delta, std::string_view finish,
                    std::string& events) const {
    events += before_index_;
    JsonText json(events);
    json.value(index);
    events += is_chat_ ? ",\"delta\":{" : ",";
    events += delta;
    events += is_chat_ ? "},\"logprobs\":" : ",\"logprobs\":";
    events += logprobs_.empty() ? "null" : logprobs_;
    events += finish.empty() ? ",\"finish_reason\":null" : finish;
    events += "}]";
    if (request_.include_usage) json.key("usage");
    if (request_.continuous_usage) {
      write_usage(json, usage_.of(index));
    } else if (request_.include_usage) {
      json.null();
    }
    if (request_.timings) write_timings(json, usage_.of(index));
    events += "}\n\n";
  }

  void append_end(std::string& events) const {
    if (request_.include_usage) {
      events += head_ + ']';
      write_totals(events);
      events += "\n\n";
    }
    events += kDone;
  }

  void write_totals(std::string& text) const {
    JsonText json(text);
    json.key("usage");
    write_usage(json, usage_.total());
    if (request_.timings) write_timings(json, usage_.total());
    json.close('}');
  }

  void write_next() {
    JsonText json(head_);
    if (next_part_ == Part::choice) return write_choice(json);
    if (next_part_ == Part::logprobs) {
      if (!logprobs_writer_->write_next(json)) end_choice(json);
      return;
    }
    json.close(']');
    write_totals(head_);
    next_part_ = Part::none;
  }

  void write_choice(JsonText& json) {
    const Choice& choice = at(next_choice_);
    json.open('{').field("index", next_choice_);
    if (!is_chat_) {
      json.field("text", choice.text);
    } else if (choice.parsed) {
      json.key("message");
      write_message(json, request_, choice.parsed->parts);
    } else {
      json.key("message").open('{').field("role", "assistant").field("content", choice.text);
      json.key("refusal").null().close('}');
    }
    json.key("logprobs");
    if (request_.sampling.logprobs < 0) {
      json.null();
      return end_choice(json);
    }
    logprobs_writer_.emplace(logprobs_writer(next_choice_, choice.logprobs));
    next_part_ = Part::logprobs;
  }

  void end_choice(JsonText& json) {
    head_ += at(next_choice_).finish;
    json.close('}');
    at(next_choice_) = {};
    next_part_ = ++next_choice_ < request_.num_choices() ? Part::choice : Part::tail;
  }

  const CompletionRequest& request_;
  const bool is_chat_;
  const bool streams_;
  const Tokenizer& tokenizer_;
  UsageCount usage_;
  std::vector<Choice> choices_;
  int32_t num_unfinished_;
  std::string problem_;
  std::string
      head_;  ///< the beginning of every event, up to the choices; of a body, what is not given out yet
  std::string before_index_;  ///< the beginning and on, up to the index of its choice
  std::string delta_;         ///< members of the event that is written
  std::string logprobs_;      ///< the same; empty: it has none
  Part next_part_ = Part::choice;
  int32_t next_choice_ = 0;
  std::optional<LogprobsWriter> logprobs_writer_;  ///< of the choice that is written
};

}  // namespace

const Dialect kCompletionsDialect{.path = "/v1/completions",
                                  .id_prefix = "cmpl-",
                                  .prompt_field = "prompt",
                                  .is_chat = false,
                                  .parse = parse_completion_request,
                                  .answer = make_answer<OpenAiAnswer>,
                                  .others = kOpenAiEndpoints};

const Dialect kChatDialect{.path = "/v1/chat/completions",
                           .id_prefix = "chatcmpl-",
                           .prompt_field = "messages",
                           .parse = parse_chat_request,
                           .answer = make_answer<OpenAiAnswer>};

}  // namespace minfer
