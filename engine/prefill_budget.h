#pragma once

#include <cstdint>

#include "engine/step_cost.h"

namespace minfer {

/// How many prompt tokens a step computes beside decoding, so that those who decode wait no longer than `target` for their next token: as
/// many as StepCost says fit into it. Without anybody who decodes, all that there is room for.
///
/// Prompts advance whatever is predicted. Where decoding alone takes about as long as the target they may lengthen a step by a quarter,
/// and get kLeastTokens in any case. What has not been seen yet is approached by doubling the tokens of a step.
class PrefillBudget {
 public:
  static constexpr int32_t kLeastTokens = 16;   ///< of prompts in a step, if there is room for them
  static constexpr int32_t kFirstTokens = 128;  ///< beside decoding, before any step with prompts was seen

  /// `cost` outlives it. `target_ns`: above 0.
  PrefillBudget(int64_t target_ns, const StepCost& cost) : target_ns_(target_ns), cost_(cost) {}

  /// Prompt tokens at most: 1 to `room` if there is any room. `decoding`: what else the step computes. `first_token`: tokens before those
  /// of the first prompt in order that are computed already.
  int32_t tokens(const BatchShape& decoding, int32_t first_token, int32_t room) const;

 private:
  bool fits(BatchShape shape, int32_t first_token, int32_t num_tokens, int64_t limit_ns) const;

  const int64_t target_ns_;
  const StepCost& cost_;
};

}  // namespace minfer
