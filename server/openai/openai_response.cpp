#include "server/openai/openai_response.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "server/openai/openai_body.h"

namespace minfer {
namespace {

constexpr size_t kPieceBytes = 64u << 10;

}  // namespace

std::optional<ApiError> failure_of(const RequestOutput& output) {
  if (output.finish == FinishReason::refused) {
    return bad_request({}, fmt::format("The engine refuses the request: {}", output.finish_detail));
  }
  if (output.finish == FinishReason::error) {
    return server_error(fmt::format("The request has failed: {}", output.finish_detail));
  }
  if (output.finish == FinishReason::cancelled) return unavailable("The server has cancelled the request");
  return std::nullopt;
}

UsageCount::UsageCount(const CompletionRequest& request)
    : request_(request), choices_(static_cast<size_t>(request.num_choices())) {
  for (size_t i = 0; i < choices_.size(); ++i)
    choices_[i].prompt_tokens = static_cast<int64_t>(request.prompt_of(static_cast<int32_t>(i)).size());
  for (const std::vector<TokenId>& prompt : request.prompts)
    total_.prompt_tokens += static_cast<int64_t>(prompt.size());
}

void UsageCount::add(int32_t choice, const RequestOutput& output) {
  Usage& usage = choices_[static_cast<size_t>(choice)];
  const int32_t output_tokens = request_.echo_only ? 0 : output.output_tokens;
  total_.completion_tokens += output_tokens - usage.completion_tokens;
  // A prompt's first choice stands for it: the others find in the cache what that one has computed.
  if (choice % request_.n == 0) total_.cached_tokens += output.cached_tokens - usage.cached_tokens;
  usage.completion_tokens = output_tokens;
  usage.cached_tokens = output.cached_tokens;
}

ResponseBuilder::ResponseBuilder(const CompletionRequest& request, ResponseIdentity identity,
                                 const ApiContext& context)
    : request_(request),
      identity_(std::move(identity)),
      tokenizer_(*context.tokenizer),
      system_fingerprint_(context.system_fingerprint),
      usage_(request),
      choices_(static_cast<size_t>(request.num_choices())),
      num_unfinished_(request.num_choices()) {
  for (int32_t i = 0; request.echo && i < request.num_choices(); ++i)
    choices_[static_cast<size_t>(i)].text = request.prompt_text_of(i);
}

void ResponseBuilder::add(int32_t index, RequestOutput output) {
  if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
  usage_.add(index, output);
  if (request_.echo_only) output = without_answer(std::move(output));
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.text += output.text;
  if (output.finish) {
    choice.finish = finish_json(request_, tokenizer_, output);
    --num_unfinished_;
  }
  std::ranges::move(shown_tokens(request_, index, std::move(output)), std::back_inserter(choice.logprobs));
}

std::string ResponseBuilder::next_piece() {
  while (!written() && text_.size() <= kPieceBytes)
    write_next();
  // The last character says whether a comma comes next: it stays for the next piece.
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
                 request_.endpoint == Endpoint::chat ? "chat.completion" : "text_completion");
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
      json.close('}');
      next_part_ = Part::none;
      return;
    case Part::none:
      return;
  }
}

void ResponseBuilder::write_choice(JsonText& json) {
  const Choice& choice = choices_[static_cast<size_t>(next_choice_)];
  const bool is_chat = request_.endpoint == Endpoint::chat;
  json.open('{').field("index", next_choice_);
  if (is_chat) {
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

}  // namespace minfer
