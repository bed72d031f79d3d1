#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "profiling/record/profile_header.h"
#include "profiling/record/rank_step.h"
#include "profiling/summary/aggregate.h"
#include "profiling/summary/distribution.h"
#include "profiling/summary/summary.h"
#include "profiling/text/table.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// The times of one rank in microseconds: means over the steps that it has a line for.
struct RankUse {
  int32_t rank = 0;
  int64_t steps = 0;
  double computed_us = 0.0;
  double exchange_us = 0.0;     ///< in ops between ranks
  double waited_us = 0.0;       ///< part of exchange_us, until all ranks had come
  double begin_after_us = 0.0;  ///< how much later its first op began than the earliest rank's
  double end_after_us = 0.0;    ///< how much later its last op ended than the earliest rank's
  double launch_us = 0.0;       ///< part of its host's work; 0: not known
  /// Over single steps: its host's work, and its device's idle time (see RankStep). Count 0: the file does not have them.
  Distribution host_us = {};
  Distribution idle_us = {};
};

/// Several ranks side by side.
struct RankReport {
  std::vector<RankUse> ranks;   ///< by number; empty: there is one rank
  double skew_us = 0.0;         ///< mean over steps: the longest minus the shortest computing time
  double exchange_share = 0.0;  ///< of the first rank's ops, in ops between ranks: nothing runs beside them
};

/// Gathers the report from the lines of all steps. Keeps at most kMostOpen steps that still wait for lines of some ranks.
class RankReportSum {
 public:
  static constexpr size_t kMostOpen = 64;

  void set_header(const ProfileHeader& header);
  void add(const RankStep& step);
  RankReport result() const;

 private:
  void close(const std::vector<RankStep>& ranks);

  int32_t count_ = 1;                              ///< of ranks
  std::map<int64_t, std::vector<RankStep>> open_;  ///< by step
  std::map<int32_t, RankUse> sums_;                ///< sums in place of means
  int64_t steps_ = 0;
  double skew_us_ = 0.0;
};

Table rank_table(const RankReport& report);
/// The traced kernels of each rank; no rows if only the first rank was traced.
Table traced_ranks_table(std::span<const RangeLine> first, std::span<const RangeLine> others);
/// The first rank's ops between ranks; no rows if there are none.
Table exchange_table(std::span<const OpAggregate> ops);

}  // namespace minfer
