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

RankStep RankStepMaker::make(int64_t step, const StepStamps& stamps, std::span<const OpInfo> ops,
                             const Host& host) {
  RankStep sum = rank_step_of(step, rank_, stamps, ops);
  const int64_t ops_ns = stamps.waited_until_ns == 0 ? sum.end_ns - sum.begin_ns : 0;
  sum.launch_ns = std::max<int64_t>(0, host.launch_ns - ops_ns);
  sum.host_ns = sum.launch_ns + std::max<int64_t>(0, host.finish_ns);
  sum.idle_ns = idle_within_ns(stamps);
  if (host.has_before && last_step_ + 1 == step)
    sum.idle_ns += std::max<int64_t>(0, sum.begin_ns - last_end_ns_);
  last_step_ = step;
  last_end_ns_ = sum.end_ns;
  return sum;
}

int64_t RankStepMaker::idle_within_ns(const StepStamps& stamps) {
  const auto is_launched_alone = [](const StepStamps::Stamp& stamp) { return stamp.launched_ns != 0; };
  if (std::ranges::none_of(stamps.ops, is_launched_alone)) {  // a graph: nothing is seen within it
    idle_.pass_over(stamps);
    return 0;
  }
  int64_t ns = 0;
  for (const BusyOp& op : idle_.find(stamps))
    ns += op.idle_ns();
  return ns;
}

}  // namespace minfer
