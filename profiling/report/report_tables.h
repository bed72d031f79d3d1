#pragma once

#include <array>
#include <vector>

#include "profiling/findings/draft_evidence.h"
#include "profiling/summary/aggregate.h"
#include "profiling/text/table.h"

namespace minfer {

/// The tables of a report, one function each.
Table steps_table(const Aggregate& aggregate);
/// No rows if no step has a prediction.
Table prediction_table(const Aggregate& aggregate);
/// No rows if no step had draft tokens.
Table drafts_table(const std::vector<DraftUse>& uses);
Table wall_time_table(const Aggregate& aggregate);
Table phases_table(const Aggregate& aggregate);
Table ops_table(const std::vector<OpAggregate>& ops, double all_us);
/// The same as two tables that fit on a terminal: times, and speeds.
std::array<Table, 2> narrow_ops_tables(const std::vector<OpAggregate>& ops, double all_us);
/// The device's idle time, between steps and within them.
Table idle_table(const Aggregate& aggregate);
/// The most frequent launch of each op. `launches`: the file's.
Table kernels_table(const std::vector<OpAggregate>& ops, const std::vector<KernelLaunch>& launches);
/// Ops with weights in another type on the device than in the file; no rows if there are none. `ops`: the header's.
Table converted_table(const std::vector<OpInfo>& ops);
/// `at_end.total_bytes` 0: not known.
Table memory_table(const MemoryUse& at_begin, const MemoryUse& at_end);
Table slowest_table(const std::vector<StepSummary>& steps);

}  // namespace minfer
