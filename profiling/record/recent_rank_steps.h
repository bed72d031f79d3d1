#pragma once

#include <cstddef>
#include <vector>

#include "profiling/record/recent_items.h"
#include "profiling/record/recorder.h"

namespace minfer {

/// What the last steps took on each of several ranks, for those who look on; of one rank nothing.
class RecentRankSteps final : public StepSink {
 public:
  static constexpr size_t kMost = 4096;  ///< of all ranks together: 400 KB

  void consume(const StepRecord&) noexcept override { steps_.put_late(); }
  void consume_rank_step(const RankStep& step) noexcept override { steps_.add(step); }
  bool wants_requests() const noexcept override { return false; }

  /// In the order in which they came. Any thread.
  std::vector<RankStep> all() const {
    return steps_.last_while([](const RankStep&) { return true; });
  }

 private:
  RecentItems<RankStep> steps_{kMost};
};

}  // namespace minfer
