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

/// A step of a range, in the form that tier 0 recorded.
struct TracedStep {
  int64_t step = 0;
  BatchShape shape;
  StepStamps stamps;
};

/// The records of a traced range on a rank other than the first.
struct RankTrace {
  int32_t rank = 0;               ///< also its device's number
  std::vector<TracedStep> steps;  ///< in order; their shapes are the first rank's
  std::vector<KernelLaunch> launches;
};

/// The raw records of a traced range of steps, as the engine thread gives them.
struct RangeTrace {
  int64_t first_step = 0;  ///< as requested
  int64_t last_step = std::numeric_limits<int64_t>::max();
  std::string error;              ///< why nothing was traced; empty: no error
  std::vector<TracedStep> steps;  ///< the steps that ended within the range, in order
  TraceRecords records;
  std::vector<KernelLaunch> launches;  ///< the stamps' launches are indices into this
  std::vector<RankTrace> ranks = {};   ///< other ranks in this process; `records` has their work too
  int32_t rank = 0;                    ///< the rank that this belongs to
  std::vector<KernelLaunch> file_launches = {};  ///< on other ranks: the first rank's launches
};

/// Splits a range by rank, the first rank in front.
std::vector<RangeTrace> by_rank(RangeTrace range);

}  // namespace minfer
