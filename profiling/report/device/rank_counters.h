#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profiling/report/device/counters_report.h"
#include "profiling/report/text/table.h"

namespace minfer {

/// What windows of hardware counters say of the ranks other than the first, by rank.
using RankCounterSums = std::map<int32_t, CounterAggregate>;

/// Of a report on several ranks: why there are no counters of some.
std::vector<std::string> rank_counter_sentences(const CounterAggregate& first, const RankCounterSums& others,
                                                size_t num_ranks);
/// The ranks' devices side by side, a row each; none where the first one's alone were read.
Table rank_counters_table(const CounterAggregate& first, const RankCounterSums& others);

}  // namespace minfer
