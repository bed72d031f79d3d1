#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sampling.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The logprobs of a request's own prompt: of each token behind the first, given those before it. Every
/// position is scored by a row of logits from which nothing can be drawn but the token that stands there: a
/// greedy row with a bias that lifts this token above all others. Logprobs are of the logits before biases.
class PromptScores {
 public:
  /// `num_top` -1: none are wanted, and nothing is kept.
  PromptScores(std::span<const TokenId> prompt, int32_t num_top);

  /// The row that scores prompt[position + 1] from the logits at `position`. The span in it stays valid as
  /// long as this object.
  SamplingRow row(int32_t position) const;
  /// What that row gave. A position may be scored again, after a preemption.
  void accept(int32_t position, SampledToken scored);
  /// All of them, in order of position; none are left.
  std::vector<SampledToken> take();

 private:
  int32_t num_top_;
  std::vector<LogitBias> lifts_;      ///< [prompt - 1] the token behind each position
  std::vector<SampledToken> scores_;  ///< [prompt - 1]
};

}  // namespace minfer
