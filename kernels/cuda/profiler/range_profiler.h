#pragma once

#include <memory>

#include "kernels/counters.h"

namespace minfer::cuda {

/// Counters of single ops on device `device` by CUPTI's range profiler: user ranges, replayed by the caller.
/// Nothing of CUPTI is loaded before measure(), whose first call switches it on for good: 100 ms. Some
/// milliseconds a pass, about seven passes an op.
std::unique_ptr<RangeCounters> make_range_profiler(int device);

}  // namespace minfer::cuda
