#pragma once

#include <vector>

#include "profiling/report/aggregate.h"
#include "profiling/report/table.h"

namespace minfer {

/// The tables of a report, one function each.
Table steps_table(const Aggregate& aggregate);
Table wall_time_table(const Aggregate& aggregate);
Table phases_table(const Aggregate& aggregate);
Table ops_table(const std::vector<OpAggregate>& ops, double all_us);
/// What the device idled, between steps and within them.
Table idle_table(const Aggregate& aggregate);
/// What each op launched most often. `launches`: of the file.
Table kernels_table(const std::vector<OpAggregate>& ops, const std::vector<KernelLaunch>& launches);
Table memory_table(const MemoryUse& memory);
Table slowest_table(const std::vector<const StepSummary*>& steps);

}  // namespace minfer
