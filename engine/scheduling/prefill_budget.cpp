#include "engine/scheduling/prefill_budget.h"

#include <algorithm>

namespace minfer {

std::optional<PrefillBudget> PrefillBudget::make(std::optional<double> target_itl_ms, const StepCost& cost) {
  if (target_itl_ms == 0.0) return std::nullopt;
  const auto target_ns =
      target_itl_ms ? std::optional(static_cast<int64_t>(*target_itl_ms * 1e6)) : std::nullopt;
  return std::optional<PrefillBudget>(std::in_place, target_ns, cost);
}

int32_t PrefillBudget::tokens(const BatchShape& decoding, int32_t first_token, int32_t room,
                              int32_t num_waiting) const {
  if (decoding.decode_sequences == 0 || room <= kLeastTokens) return room;
  if (cost_.most_tokens_seen() == 0) return std::min(room, kFirstTokens);
  const int64_t most = std::max<int64_t>(kFirstTokens, int64_t{2} * cost_.most_tokens_seen());
  const auto known_room = static_cast<int32_t>(std::min<int64_t>(room, most));
  if (target_ns_) return most_within_target(decoding, first_token, known_room);
  return fewest_at_speed(decoding, first_token, known_room, kLoss / (1.0 + num_waiting));
}

int32_t PrefillBudget::most_within_target(const BatchShape& decoding, int32_t first_token,
                                          int32_t room) const {
  const int64_t decode_ns = cost_.predict_ns(decoding);
  const int64_t limit_ns = std::max(*target_ns_, decode_ns + decode_ns / 4);
  int32_t low = kLeastTokens;  // what it may be in any case; `high` is too much, or more than there is
  int32_t high = room + 1;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (step_ns(decoding, first_token, middle) <= limit_ns ? low : high) = middle;
  }
  return low;
}

/// The time per token falls, and rises again where attention outweighs the rest: the step's time
/// is convex. So sizes other than those that are tried are not much better than the best of them.
int32_t PrefillBudget::fewest_at_speed(const BatchShape& decoding, int32_t first_token, int32_t room,
                                       double loss) const {
  const auto token_ns = [&](int32_t tokens) {
    return static_cast<double>(step_ns(decoding, first_token, tokens)) / tokens;
  };
  double least_ns = token_ns(room);
  for (int32_t tokens = room / 2; tokens >= kLeastTokens; tokens /= 2)
    least_ns = std::min(least_ns, token_ns(tokens));
  const double limit_ns = (1.0 + loss) * least_ns;
  int32_t high = room;  // fast enough; `low` is too slow, or less than they get in any case
  int32_t low = kLeastTokens - 1;
  while (token_ns(high) > limit_ns && high / 2 >= kLeastTokens)
    high /= 2;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (token_ns(middle) <= limit_ns ? high : low) = middle;
  }
  return high;
}

/// The tokens, counted as one prompt's: with several prompts, those behind the first attend to less.
int64_t PrefillBudget::step_ns(BatchShape shape, int32_t first_token, int32_t num_tokens) const {
  shape.prefill_sequences = 1;
  shape.prefill_tokens = num_tokens;
  shape.prefill_logit_rows = 1;
  shape.prefill_context = int64_t{first_token} + num_tokens;
  shape.prefill_attended =
      int64_t{num_tokens} * first_token + int64_t{num_tokens} * (int64_t{num_tokens} + 1) / 2;
  return cost_.predict_ns(shape);
}

}  // namespace minfer
