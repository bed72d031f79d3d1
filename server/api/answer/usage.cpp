#include "server/api/answer/usage.h"

#include <algorithm>

#include <fmt/format.h>

namespace minfer {

std::optional<ApiError> failure_of(const RequestOutput& output) {
  if (output.finish == FinishReason::refused)
    return bad_request({}, "The engine refuses the request: {}", output.finish_detail);
  if (output.finish == FinishReason::error)
    return ApiError(500, fmt::format("The request has failed: {}", output.finish_detail));
  if (output.finish == FinishReason::cancelled) return ApiError(503, "The server has cancelled the request");
  return std::nullopt;
}

void AnswerTimes::take_slower(const RequestOutput& output) {
  if (output.first_scheduled_ns == 0 || output.last_token_ns == 0) return;
  // A prompt that is only scored has no first token.
  const int64_t first_ns = output.first_token_ns > 0 ? output.first_token_ns : output.last_token_ns;
  queue_ns = std::max(queue_ns, output.first_scheduled_ns - output.arrival_ns);
  prompt_ns = std::max(prompt_ns, first_ns - output.first_scheduled_ns);
  predicted_ns = std::max(predicted_ns, output.last_token_ns - first_ns);
}

UsageCount::UsageCount(const CompletionRequest& request)
    : num_answers_(request.n), choices_(static_cast<size_t>(request.num_choices())) {
  for (size_t i = 0; i < choices_.size(); ++i)
    choices_[i].prompt_tokens = static_cast<int64_t>(request.prompt_of(static_cast<int32_t>(i)).size());
  for (const std::vector<TokenId>& prompt : request.prompts)
    total_.prompt_tokens += static_cast<int64_t>(prompt.size());
  if (request.parsing.finds_reasoning())
    for (Usage& usage : choices_)
      usage.reasoning_tokens = total_.reasoning_tokens = 0;
}

void UsageCount::add(int32_t choice, const RequestOutput& output, int64_t reasoning_tokens) {
  Usage& usage = choices_[static_cast<size_t>(choice)];
  // Only a prompt's first choice counts cached tokens: the others find in the cache what the first has computed.
  if (choice % num_answers_ == 0) total_.cached_tokens += output.cached_tokens - usage.cached_tokens;
  usage.cached_tokens = output.cached_tokens;
  const auto advance = [&](int64_t Usage::*tokens, int64_t now) {
    total_.*tokens += now - std::exchange(usage.*tokens, now);
  };
  advance(&Usage::completion_tokens, output.output_tokens);
  advance(&Usage::draft_tokens, output.drafted.draft_tokens);
  advance(&Usage::accepted_tokens, output.drafted.accepted_tokens);
  if (usage.reasoning_tokens >= 0) advance(&Usage::reasoning_tokens, reasoning_tokens);
  for (Usage* each : {&usage, &total_})
    each->times.take_slower(output);
}

void write_timings(JsonText& json, const Usage& usage) {
  const auto write = [&](std::string_view name, int64_t tokens, int64_t ns) {
    const double ms = static_cast<double>(ns) * 1e-6, count = static_cast<double>(tokens);
    json.field(fmt::format("{}_n", name), tokens).field(fmt::format("{}_ms", name), ms, 6);
    json.field(fmt::format("{}_per_token_ms", name), tokens > 0 ? ms / count : 0.0, 6);
    json.field(fmt::format("{}_per_second", name), ns > 0 ? 1e3 * count / ms : 0.0, 6);
  };
  json.key("timings").open('{').field("cache_n", usage.cached_tokens);
  write("prompt", usage.prompt_tokens - usage.cached_tokens, usage.times.prompt_ns);
  write("predicted", usage.completion_tokens, usage.times.predicted_ns);
  if (usage.draft_tokens > 0)
    json.field("draft_n", usage.draft_tokens).field("draft_n_accepted", usage.accepted_tokens);
  json.close('}');
}

}  // namespace minfer
