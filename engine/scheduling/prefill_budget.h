#pragma once

#include <cstdint>
#include <optional>

#include "engine/scheduling/step_cost.h"

namespace minfer {

/// How many prompt tokens a step computes beside decoding. If no sequence decodes, as many as there is room for.
///
/// With a target, decoding sequences wait no longer than the target for their next token: a step takes as many prompt tokens as
/// StepCost says fit into it. Where decoding alone takes about as long as the target, prompts may lengthen a step by a quarter.
///
/// Without a target, prompts lose at most kLoss of their speed: the fewest tokens for which a step's time per token is at most 1 +
/// kLoss times the least possible. Each further piece costs prompts the time of a step without prompts. Where the step waits for
/// memory, tokens up to the bend of the roofline cost nothing, and few are enough. Where every token costs its time (c without
/// prompts, s for a token), that number is c / (kLoss s), and a step takes 1 + 1 / kLoss times its time without prompts. The time that one prompt
/// loses, the prompts behind it lose too: all who wait share kLoss, so pieces grow with the queue, up to all that there is room for.
///
/// Prompts advance whatever is predicted: they get kLeastTokens in any case.
/// The budget approaches unseen sizes by doubling the tokens of a step.
class PrefillBudget {
 public:
  static constexpr double kLoss = 0.25;
  static constexpr int32_t kLeastTokens = 16;   ///< prompt tokens of a step, if there is room for them
  static constexpr int32_t kFirstTokens = 128;  ///< tokens beside decoding, before any step with prompts

  /// `cost` outlives it. `target_ns` absent: there is no target.
  PrefillBudget(std::optional<int64_t> target_ns, const StepCost& cost)
      : target_ns_(target_ns), cost_(cost) {}

  /// Makes the budget for EngineOptions::target_itl_ms; absent if that is 0.
  static std::optional<PrefillBudget> make(std::optional<double> target_itl_ms, const StepCost& cost);

  /// The most prompt tokens of the step: 1 to `room` if there is any room. `decoding`: what else the step computes. `first_token`:
  /// tokens before those of the first prompt in order that are computed already. `num_waiting`: sequences in the queue.
  int32_t tokens(const BatchShape& decoding, int32_t first_token, int32_t room,
                 int32_t num_waiting = 0) const;

 private:
  int32_t most_within_target(const BatchShape& decoding, int32_t first_token, int32_t room) const;
  int32_t fewest_at_speed(const BatchShape& decoding, int32_t first_token, int32_t room, double loss) const;
  int64_t step_ns(BatchShape shape, int32_t first_token, int32_t num_tokens) const;

  const std::optional<int64_t> target_ns_;
  const StepCost& cost_;
};

}  // namespace minfer
