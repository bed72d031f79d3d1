#include "server/openai/openai_response.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "server/openai/openai_body.h"

namespace minfer {

std::optional<ApiError> failure_of(const RequestOutput& output) {
  if (output.finish == FinishReason::refused) {
    return bad_request({}, fmt::format("The engine refuses the request: {}", output.finish_detail));
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

void ResponseBuilder::add(int32_t index, const RequestOutput& output) {
  if (std::optional<ApiError> failure = failure_of(output)) throw std::move(*failure);
  usage_.add(index, output);
  if (request_.echo_only) {
    take(index, without_answer(output));
  } else {
    take(index, output);
  }
}

void ResponseBuilder::take(int32_t index, const RequestOutput& output) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.text += output.text;
  const std::vector<SampledToken> tokens = shown_tokens(request_, index, output);
  choice.logprobs.insert(choice.logprobs.end(), tokens.begin(), tokens.end());
  if (!output.finish) return;
  choice.finish = finish_json(request_, tokenizer_, output);
  --num_unfinished_;
}

void ResponseBuilder::write_answer(JsonText& json, int32_t index) const {
  const Choice& choice = choices_[static_cast<size_t>(index)];
  const bool is_chat = request_.endpoint == Endpoint::chat;
  if (is_chat) {
    json.key("message").open('{').field("role", std::string_view("assistant"));
    json.field("content", choice.text).key("refusal").null().close('}');
  } else {
    json.field("text", choice.text);
  }
  json.key("logprobs");
  if (request_.sampling.logprobs < 0) {
    json.null();
  } else if (is_chat) {
    write_chat_logprobs(json, tokenizer_, choice.logprobs);
  } else {
    TextOffsets offsets = first_offsets(request_, tokenizer_, index);
    write_completion_logprobs(json, tokenizer_, choice.logprobs, offsets);
  }
}

std::string ResponseBuilder::body() const {
  std::string text;
  JsonText json(text);
  json.open('{');
  write_head(json, request_, identity_, system_fingerprint_,
             request_.endpoint == Endpoint::chat ? "chat.completion" : "text_completion");
  json.key("choices").open('[');
  for (int32_t i = 0; i < request_.num_choices(); ++i) {
    json.open('{').field("index", i);
    write_answer(json, i);
    text += choices_[static_cast<size_t>(i)].finish;
    json.close('}');
  }
  json.close(']').key("usage");
  write_usage(json, usage_.total());
  json.close('}');
  return text;
}

}  // namespace minfer
