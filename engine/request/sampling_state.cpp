#include "engine/request/sampling_state.h"

#include <limits>

#include "kernels/base/error.h"

namespace minfer {

SamplingState::SamplingState(const SamplingParams& params, uint64_t seed, std::span<const TokenId> prompt,
                             std::span<const TokenId> ending_tokens)
    : min_tokens_(params.min_tokens),
      has_penalties_(params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
                     params.frequency_penalty != 0.0f),
      biases_(params.logit_bias),
      num_lasting_biases_(biases_.size()) {
  row_.temperature = params.temperature;
  row_.top_k = params.top_k;
  row_.top_p = params.top_p;
  row_.min_p = params.min_p;
  row_.repetition_penalty = params.repetition_penalty;
  row_.presence_penalty = params.presence_penalty;
  row_.frequency_penalty = params.frequency_penalty;
  row_.seed = seed;
  row_.top_logprobs = params.logprobs;
  for (TokenId token : min_tokens_ > 0 ? ending_tokens : std::span<const TokenId>())
    biases_.push_back({token, -std::numeric_limits<float>::infinity()});
  if (biases_.size() > size_t{kMaxRowBiases}) {
    fail("logit_bias: {} entries, and {} stop tokens that min_tokens forbids, expected at most {} together",
         num_lasting_biases_, biases_.size() - num_lasting_biases_, kMaxRowBiases);
  }
  if (has_penalties_) {
    for (TokenId token : prompt)
      count_of(token).in_prompt = true;
  }
}

TokenCount& SamplingState::count_of(TokenId token) {
  const auto [entry, is_new] = count_index_.try_emplace(token, counts_.size());
  if (is_new) counts_.push_back({.token = token, .output_count = 0, .in_prompt = false});
  return counts_[entry->second];
}

SamplingRow SamplingState::row(int64_t position, int32_t num_output) const {
  SamplingRow row = row_;
  row.position = position;
  row.counts = counts_;
  row.biases = std::span(biases_).first(num_output < min_tokens_ ? biases_.size() : num_lasting_biases_);
  return row;
}

void SamplingState::accept(TokenId token) {
  if (has_penalties_) ++count_of(token).output_count;
}

GivenScores::GivenScores(std::span<const TokenId> tokens, int32_t position, int32_t num_top)
    : first_(position), num_top_(num_top) {
  constexpr float kLift = 1e30f;  // above any logit, and finite: infinity would make NaN of a logit of -inf
  if (num_top < 0 || tokens.empty()) return;
  for (const TokenId token : tokens.subspan(1))
    lifts_.push_back({token, kLift});
}

SamplingRow GivenScores::row(int32_t position) const {
  SamplingRow row;
  row.temperature = 0.0f;
  row.position = position + 1;
  row.top_logprobs = num_top_;
  row.biases = {&lift(position), 1};
  return row;
}

void GivenScores::correct(int32_t position, SampledToken& scored) const {
  if (scored.token == lift(position).token) return;
  scored.token = lift(position).token;
  scored.logprob = -std::numeric_limits<float>::infinity();
}

}  // namespace minfer
