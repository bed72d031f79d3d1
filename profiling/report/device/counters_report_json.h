#pragma once

#include <nlohmann/json.hpp>

#include "profiling/report/report_data.h"

namespace minfer {

/// What a report in JSON says of hardware counters of the first rank; null: the profile has no line of them. What is not known is null.
nlohmann::ordered_json counters_json(const ReportData& data);
/// Ops that read ahead, by the stamps alone.
nlohmann::ordered_json read_ahead_json(const ReportData& data);
/// Of each of several ranks, the first one too; empty where its device's alone were read.
nlohmann::ordered_json rank_counters_json(const ReportData& data);

}  // namespace minfer
