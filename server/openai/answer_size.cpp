#include "server/openai/answer_size.h"

#include <algorithm>

#include <fmt/format.h>

namespace minfer {
namespace {

// Of tokens of five characters, the mean of English text.
constexpr int64_t kTextBytes = 6;
// {"token":" name","logprob":-12.345678,"bytes":[32,110,97,109,101]},"top_logprobs":[
constexpr int64_t kChatEntryBytes = 76;
// 1234, -12.345678, " name", and each alternative's " name":-12.345678,
constexpr int64_t kCompletionEntryBytes = 26;
constexpr int64_t kAlternativeBytes = 20;

/// Of one token with `num_top` alternatives; -1: without logprobs.
int64_t logprobs_bytes(Endpoint endpoint, int64_t num_top) {
  if (num_top < 0) return 0;
  return is_chat(endpoint) ? kChatEntryBytes * (1 + num_top)
                           : kCompletionEntryBytes + kAlternativeBytes * (1 + num_top);
}

int64_t answer_token_bytes(const CompletionRequest& request) {
  return kTextBytes + logprobs_bytes(request.endpoint, request.sampling.logprobs);
}

/// Of the echoed prompts' logprobs, over all choices.
int64_t prompt_bytes(const CompletionRequest& request) {
  int64_t num_tokens = 0;
  for (const std::vector<TokenId>& prompt : request.prompts)
    num_tokens += static_cast<int64_t>(prompt.size());
  return num_tokens * request.n * logprobs_bytes(request.endpoint, request.sampling.prompt_logprobs);
}

}  // namespace

int64_t estimate_answer_bytes(const CompletionRequest& request, int64_t max_tokens) {
  return prompt_bytes(request) + request.num_choices() * max_tokens * answer_token_bytes(request);
}

int64_t bound_max_tokens(const CompletionRequest& request, std::optional<int64_t> wanted, int64_t otherwise,
                         int64_t max_bytes) {
  const int64_t token_bytes = request.num_choices() * answer_token_bytes(request);
  const int64_t most = (max_bytes - prompt_bytes(request)) / token_bytes;
  const int64_t max_tokens = wanted.value_or(std::min(otherwise, std::max<int64_t>(most, 1)));
  const int64_t bytes = estimate_answer_bytes(request, max_tokens);
  if (bytes <= max_bytes) return max_tokens;
  constexpr double kMega = 1e6;
  throw bad_request(
      "max_tokens",
      fmt::format("max_tokens: {} tokens in each of {} choices{}, about {:.0f} MB of JSON, expected at most "
                  "{:.0f} MB (the server's --max-answer-bytes). Please reduce n, max_tokens or the logprobs.",
                  max_tokens, request.num_choices(),
                  request.sampling.logprobs < 0
                      ? std::string{}
                      : fmt::format(" with the logprobs of {} alternatives each", request.sampling.logprobs),
                  static_cast<double>(bytes) / kMega, static_cast<double>(max_bytes) / kMega));
}

}  // namespace minfer
