#pragma once

#include <string>

#include "profiling/report/text/table.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// What came of a traced range (profiler tier 1), in a sentence.
std::string range_sentence(const RangeLine& range);

/// What the device idled in it, by cause, and the ops before which most of that lies. Without rows: it did not, or a file of an older
/// version does not say.
Table range_idle_table(const RangeLine& range);
Table idle_ops_table(const RangeLine& range);

/// Its ops between stamps (tier 0) against their kernels as the driver saw them.
Table attribution_table(const RangeLine& range);

}  // namespace minfer
