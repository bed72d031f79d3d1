#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "profiling/json/profile_header.h"
#include "profiling/record/rank_step.h"
#include "profiling/report/aggregate.h"
#include "profiling/report/distribution.h"
#include "profiling/report/summary.h"
#include "profiling/report/text/table.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// What one rank did, means over the steps of which it has a line, in microseconds.
struct RankUse {
  int32_t rank = 0;
  int64_t steps = 0;
  double computed_us = 0.0;
  double exchange_us = 0.0;     ///< in ops between ranks, of which
  double waited_us = 0.0;       ///< this until all had come
  double begin_after_us = 0.0;  ///< its first op after that of the rank that began first
  double end_after_us = 0.0;    ///< its last op's end after that of the rank that ended first
  double launch_us = 0.0;       ///< of its host's work; 0: not known
  /// Of single steps: work of its host, and idle time of its device (see RankStep). No count: the file does not have them.
  Distribution host_us = {};
  Distribution idle_us = {};
};

/// Several ranks side by side.
struct RankReport {
  std::vector<RankUse> ranks;   ///< by number; empty: one rank
  double skew_us = 0.0;         ///< mean over steps: what the longest computing took more than the shortest
  double exchange_share = 0.0;  ///< of the first rank's ops, in ops between ranks: nothing runs beside them
};

/// Gathers it while lines come, of all steps of a file. Keeps the steps whose ranks' lines have not all come yet, kMostOpen at the most.
class RankReportSum {
 public:
  static constexpr size_t kMostOpen = 64;

  void set_header(const ProfileHeader& header);
  void add(const RankStep& step);
  RankReport result() const;

 private:
  struct Sum {
    int64_t steps = 0;
    double computed_us = 0.0, exchange_us = 0.0, waited_us = 0.0, begin_after_us = 0.0, end_after_us = 0.0,
           launch_us = 0.0;
    Distribution host_us, idle_us;
  };
  void close(const std::vector<RankStep>& ranks);

  int32_t count_ = 1;                              ///< of ranks
  std::map<int64_t, std::vector<RankStep>> open_;  ///< by step
  std::map<int32_t, Sum> sums_;
  int64_t steps_ = 0;
  double skew_us_ = 0.0;
};

Table rank_table(const RankReport& report);
/// Traced kernels of each of several ranks; no rows where the first one's alone were traced.
Table traced_ranks_table(std::span<const RangeLine> first, std::span<const RangeLine> others);
/// Ops between ranks, of the first rank; no rows where there are none.
Table exchange_table(std::span<const OpAggregate> ops);

}  // namespace minfer
