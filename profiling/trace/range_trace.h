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

/// What another rank than the first recorded of a traced range.
struct RankTrace {
  int32_t rank = 0;               ///< and its device's number
  std::vector<TracedStep> steps;  ///< in order; their shapes are the first rank's
  std::vector<KernelLaunch> launches;
};

/// What came of tracing a range of steps, as it leaves the engine thread.
struct RangeTrace {
  int64_t first_step = 0;  ///< asked for
  int64_t last_step = std::numeric_limits<int64_t>::max();
  std::string error;              ///< why nothing was traced; empty: it was
  std::vector<TracedStep> steps;  ///< those that ended within the range, in order
  TraceRecords records;
  std::vector<KernelLaunch> launches;            ///< what the stamps' launches are indices into
  std::vector<RankTrace> ranks = {};             ///< the others in this process; `records` has their work too
  int32_t rank = 0;                              ///< of which this is
  std::vector<KernelLaunch> file_launches = {};  ///< of another rank: the first one's launches
};

/// A range for each rank, the first one in front.
std::vector<RangeTrace> by_rank(RangeTrace range);

}  // namespace minfer
