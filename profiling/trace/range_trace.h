#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/device_trace.h"
#include "kernels/launches.h"
#include "kernels/stamps.h"
#include "kernels/work.h"

namespace minfer {

/// A step of a range, as tier 0 recorded it.
struct TracedStep {
  int64_t step = 0;
  BatchShape shape;
  StepStamps stamps;
};

/// What came of tracing a range of steps, as it leaves the engine thread.
struct RangeTrace {
  int64_t first_step = 0;  ///< asked for
  int64_t last_step = std::numeric_limits<int64_t>::max();
  std::string error;              ///< why nothing was traced; empty: it was
  std::vector<TracedStep> steps;  ///< those that ended within the range, in order
  TraceRecords records;
  std::vector<KernelLaunch> launches;  ///< what the stamps' launches are indices into
};

}  // namespace minfer
