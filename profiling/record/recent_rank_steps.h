#pragma once

#include <cstddef>
#include <vector>

#include "profiling/record/recent_items.h"
#include "profiling/record/recorder.h"

namespace minfer {

/// The last steps' times on each of several ranks, for viewers; empty with one rank.
class RecentRankSteps final : public StepSink {
 public:
  static constexpr size_t kMost = 4096;  ///< all ranks together: 400 KB

  void consume(const StepRecord&) noexcept override { steps_.put_late(); }
  void consume_rank_step(const RankStep& step) noexcept override { steps_.add(step); }
  bool wants_requests() const noexcept override { return false; }

  /// All of them, in the order in which they came. Any thread.
  std::vector<RankStep> all() const {
    return steps_.last_while([](const RankStep&) { return true; });
  }

 private:
  RecentItems<RankStep> steps_{kMost};
};

}  // namespace minfer
