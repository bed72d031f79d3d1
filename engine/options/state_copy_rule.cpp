#include "engine/options/state_copy_rule.h"

#include <algorithm>

namespace minfer {

int64_t next_state_copy(const StateCopyRule& rule, const StateCopyFacts& facts) {
  const int64_t block_size = facts.block_size;
  const auto up_to = [](int64_t tokens, int64_t unit) { return (tokens + unit - 1) / unit * unit; };
  const int64_t earliest =
      std::max(int64_t{facts.last_copy} + rule.least_tokens, int64_t{facts.num_scheduled} + 1);
  int64_t next = up_to(earliest, up_to(rule.interval, block_size));
  for (const int64_t tokens :
       {int64_t{facts.num_prefill} - rule.reopened_tokens, int64_t{facts.num_shared}}) {
    const int64_t end = tokens / block_size * block_size;
    if (end >= earliest) next = std::min(next, end);
  }
  return next;
}

}  // namespace minfer
