#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profiling/report/device/counters_report.h"
#include "profiling/report/text/table.h"

namespace minfer {

/// Sums over the windows of hardware counters of every rank but the first, by rank.
using RankCounterSums = std::map<int32_t, CounterAggregate>;

/// Sentences for a report on several ranks: why some have no counters.
std::vector<std::string> rank_counter_sentences(const CounterAggregate& first, const RankCounterSums& others,
                                                size_t num_ranks);
/// The ranks' devices side by side, one row each; no rows if only the first rank's was read.
Table rank_counters_table(const CounterAggregate& first, const RankCounterSums& others);

}  // namespace minfer
