#include "server/dialects/openai/openai_response.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "server/dialects/openai/completions.h"
#include "server/dialects/openai/openai_body.h"
#include "server/dialects/openai/openai_tokenize.h"

namespace minfer {
namespace {

constexpr size_t kPieceBytes = 64u << 10;

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

}  // namespace minfer
