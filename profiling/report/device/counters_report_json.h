#pragma once

#include "profiling/json/member_json.h"
#include "profiling/report/report_data.h"

namespace minfer {

/// The first rank's hardware counters in a JSON report; null: the profile has no line of them. A value that is not known is null.
OrderedJson counters_json(const ReportData& data);
/// Ops that read ahead, by the stamps alone.
OrderedJson read_ahead_json(const ReportData& data);
/// The same for each of several ranks, including the first; empty if only the first rank's device was read.
OrderedJson rank_counters_json(const ReportData& data);

}  // namespace minfer
