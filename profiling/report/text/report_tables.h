#pragma once

#include <array>
#include <vector>

#include "profiling/findings/draft_evidence.h"
#include "profiling/report/aggregate.h"
#include "profiling/report/text/table.h"

namespace minfer {

/// The tables of a report, one function each.
Table steps_table(const Aggregate& aggregate);
/// Without rows where nothing was expected of any step.
Table prediction_table(const Aggregate& aggregate);
/// Without rows where no step had draft tokens.
Table drafts_table(const std::vector<DraftUse>& uses);
Table wall_time_table(const Aggregate& aggregate);
Table phases_table(const Aggregate& aggregate);
Table ops_table(const std::vector<OpAggregate>& ops, double all_us);
/// The same as two tables that fit beside one another's columns on a terminal: times, and how fast they are.
std::array<Table, 2> narrow_ops_tables(const std::vector<OpAggregate>& ops, double all_us);
/// What the device idled, between steps and within them.
Table idle_table(const Aggregate& aggregate);
/// What each op launched most often. `launches`: of the file.
Table kernels_table(const std::vector<OpAggregate>& ops, const std::vector<KernelLaunch>& launches);
/// Ops of which the device has weights in another type than the file; without rows if there are none. `ops`: of the header.
Table converted_table(const std::vector<OpInfo>& ops);
/// `at_end.total_bytes` 0: not known.
Table memory_table(const MemoryUse& at_begin, const MemoryUse& at_end);
Table slowest_table(const std::vector<StepSummary>& steps);

}  // namespace minfer
