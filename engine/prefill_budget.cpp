#include "engine/prefill_budget.h"

#include <algorithm>

namespace minfer {

int32_t PrefillBudget::tokens(const BatchShape& decoding, int32_t first_token, int32_t room) const {
  if (decoding.decode_sequences == 0 || room <= kLeastTokens) return room;
  const int64_t decode_ns = cost_.predict_ns(decoding);
  const int64_t limit_ns = std::max(target_ns_, decode_ns + decode_ns / 4);
  const int64_t most = std::max<int64_t>(kFirstTokens, int64_t{2} * cost_.most_tokens_seen());
  int32_t low = kLeastTokens;  // what it may be in any case; `high` is too much, or more than there is
  int32_t high = static_cast<int32_t>(std::min<int64_t>(room, most)) + 1;
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(decoding, first_token, middle, limit_ns) ? low : high) = middle;
  }
  return low;
}

/// The tokens counted as one prompt's: of several, those behind the first attend to less.
bool PrefillBudget::fits(BatchShape shape, int32_t first_token, int32_t num_tokens, int64_t limit_ns) const {
  shape.prefill_sequences = 1;
  shape.prefill_tokens = num_tokens;
  shape.prefill_logit_rows = 1;
  shape.prefill_context = int64_t{first_token} + num_tokens;
  shape.prefill_attended =
      int64_t{num_tokens} * first_token + int64_t{num_tokens} * (int64_t{num_tokens} + 1) / 2;
  return cost_.predict_ns(shape) <= limit_ns;
}

}  // namespace minfer
