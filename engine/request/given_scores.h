#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// Finds the logprobs of given tokens: a request's own prompt, or text that its grammar forces.
/// Each token is scored by a row of logits from which only that token can be drawn: a greedy row
/// with a bias that lifts the token above all others. Logprobs are of the logits before biases.
class GivenScores {
 public:
  /// Scores all `tokens` but the first, which is at `position` of its sequence. `num_top` -1: no scores are wanted, and nothing is kept.
  GivenScores(std::span<const TokenId> tokens, int32_t position, int32_t num_top);

  /// The row that scores the token at position + 1 from the logits at `position`. The span in it is valid as long as this object.
  SamplingRow row(int32_t position) const;
  /// Corrects the row's result where the token's logit is -inf, which no bias lifts.
  void correct(int32_t position, SampledToken& scored) const;

 private:
  const LogitBias& lift(int32_t position) const { return lifts_[static_cast<size_t>(position - first_)]; }

  int32_t first_;
  int32_t num_top_;
  std::vector<LogitBias> lifts_;  ///< the token behind each position
};

}  // namespace minfer
