#pragma once

#include <memory>

#include "kernels/counters.h"

namespace minfer::cuda {

/// Counters of single ops on device `device` by CUPTI's range profiler: user ranges, replayed by the caller.
/// Nothing of CUPTI is loaded before measure(). Its first call switches CUPTI on for good, in 100 ms. A pass
/// takes some milliseconds; an op takes about seven passes.
std::unique_ptr<RangeCounters> make_range_profiler(int device);

}  // namespace minfer::cuda
