#include "engine/request/live_request.h"

namespace minfer {
namespace {

/// With a grammar an end token always ends the text: if end tokens are ignored, the mask keeps them away.
std::vector<TokenId> ending_tokens_of(const Request& request, const Tokenizer& tokenizer) {
  std::vector<TokenId> ending = request.sampling.stop_token_ids;
  if (!request.sampling.ignore_eos || request.grammar) {
    const std::span<const TokenId> ends = tokenizer.end_tokens();
    ending.insert(ending.end(), ends.begin(), ends.end());
  }
  return ending;
}

/// The tokens that min_tokens forbids by a bias. With a grammar, its mask handles end tokens instead.
std::vector<TokenId> forbidden_at_first(const Request& request, const Tokenizer& tokenizer,
                                        std::vector<TokenId> ending_tokens) {
  if (request.grammar) std::erase_if(ending_tokens, [&](TokenId token) { return tokenizer.is_end(token); });
  return ending_tokens;
}

}  // namespace

LiveRequest::LiveRequest(const Request& request, const Tokenizer& tokenizer, uint64_t seed,
                         int32_t stream_interval)
    : Sequence(request.id, request.prompt, request.sampling.max_tokens, request.priority),
      ending_tokens(ending_tokens_of(request, tokenizer)),
      sampling(request.sampling, seed, request.prompt, forbidden_at_first(request, tokenizer, ending_tokens)),
      scores_prompt(request.sampling.prompt_logprobs >= 0),
      num_logprobs(request.sampling.logprobs),
      scores(request.prompt, 0, request.sampling.prompt_logprobs),
      output(tokenizer, request.sampling, stream_interval) {
  owner = this;
  if (request.grammar) constraint.emplace(request, tokenizer, ending_tokens);
  if (scores_prompt) num_unscored = std::max(0, num_prompt_tokens - 1);
  may_speculate = !constraint && !has_penalties(sampling.row(0, 0));
  if (request.sampling.include_stop_in_output) shown_stops = request.sampling.stop_token_ids;
  cache_salt = request.cache_salt;
  client_wait = request.client_wait;
}

bool LiveRequest::ends_with(TokenId token) const {
  return std::ranges::find(ending_tokens, token) != ending_tokens.end();
}

bool LiveRequest::shows(TokenId token) const {
  return !ends_with(token) || std::ranges::find(shown_stops, token) != shown_stops.end();
}

}  // namespace minfer
