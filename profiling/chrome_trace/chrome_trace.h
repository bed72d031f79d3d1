#pragma once

#include <cstdint>

#include "profiling/chrome_trace/trace_events.h"
#include "profiling/json/json_reader.h"
#include "profiling/report/summary.h"

namespace minfer {

struct TraceCounts {
  int64_t steps = 0;
  int64_t kernels = 0;       ///< and copies and fills
  int64_t without_step = 0;  ///< kernels and copies of steps without a line; not in the trace
};

/// Writes a profile as a trace in Chrome's JSON format, which Perfetto, chrome://tracing and Holistic Trace Analysis read. Throws
/// Error, before it writes anything, if the filter leaves no step. A filter by request leaves only that request's track.
/// See README.md for the tracks.
TraceCounts write_chrome_trace(const ProfileFile& file, const StepFilter& filter,
                               const TraceEvents::Write& write);

}  // namespace minfer
