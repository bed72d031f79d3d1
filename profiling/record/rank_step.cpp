#include "profiling/record/rank_step.h"

#include <algorithm>

namespace minfer {

RankStep rank_step_of(int64_t step, Rank rank, const StepStamps& stamps, std::span<const OpInfo> ops) {
  RankStep sum{.step = step, .rank = rank.index, .end_ns = stamps.end_ns};
  if (!stamps.ops.empty()) sum.begin_ns = stamps.ops.front().begin_ns;
  for (size_t i = 0; i < stamps.ops.size(); ++i) {
    const StepStamps::Stamp& stamp = stamps.ops[i];
    const int64_t end_ns = i + 1 < stamps.ops.size() ? stamps.ops[i + 1].begin_ns : stamps.end_ns;
    const int64_t ns = std::max<int64_t>(0, end_ns - stamp.begin_ns);
    if (is_between_ranks(ops[static_cast<size_t>(stamp.op)].kind)) {
      sum.exchange_ns += ns;
      sum.waited_ns += std::min<int64_t>(ns, stamp.waited_ns);
    } else {
      sum.computed_ns += ns;
    }
  }
  return sum;
}

}  // namespace minfer
