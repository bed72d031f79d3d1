#pragma once

#include <nlohmann/json.hpp>

#include "profiling/report/report_data.h"

namespace minfer {

/// The first rank's hardware counters in a JSON report; null: the profile has no line of them. A value that is not known is null.
nlohmann::ordered_json counters_json(const ReportData& data);
/// Ops that read ahead, by the stamps alone.
nlohmann::ordered_json read_ahead_json(const ReportData& data);
/// The same for each of several ranks, including the first; empty if only the first rank's device was read.
nlohmann::ordered_json rank_counters_json(const ReportData& data);

}  // namespace minfer
