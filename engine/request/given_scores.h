#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// How the logprobs of tokens that are given are found: of a request's own prompt, of text that its grammar forces. Each is scored by a
/// row of logits from which nothing can be drawn but the token that stands behind it: a greedy row with a bias that lifts this token above
/// all others. Logprobs are of the logits before biases.
class GivenScores {
 public:
  /// Scores all `tokens` but the first, which stands at `position` of its sequence. `num_top` -1: none are wanted, and nothing is kept.
  GivenScores(std::span<const TokenId> tokens, int32_t position, int32_t num_top);

  /// The row that scores the token at position + 1 from the logits at `position`. The span in it stays valid as long as this object.
  SamplingRow row(int32_t position) const;
  /// Corrects what that row gave where nothing lifts the token's logit, which is -inf.
  void correct(int32_t position, SampledToken& scored) const;

 private:
  const LogitBias& lift(int32_t position) const { return lifts_[static_cast<size_t>(position - first_)]; }

  int32_t first_;
  int32_t num_top_;
  std::vector<LogitBias> lifts_;  ///< the token behind each position
};

}  // namespace minfer
