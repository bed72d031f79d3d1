#pragma once

#include <string>

#include "profiling/report/text/table.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// The result of a traced range (profiler tier 1), in a sentence.
std::string range_sentence(const RangeLine& range);

/// The device's idle time in the range, by cause, and the ops with most idle time before them. No rows if there was none, or if a file
/// of an older version does not say.
Table range_idle_table(const RangeLine& range);
Table idle_ops_table(const RangeLine& range);

/// The range's ops by stamps (tier 0) against their kernels by the driver.
Table attribution_table(const RangeLine& range);

}  // namespace minfer
