#pragma once

#include <string>
#include <vector>

#include "kernels/bench/kernel_operands.h"

namespace minfer {

/// Microseconds of each run of a case, `repetitions` steps of many runs each (sample: several steps of one). A
/// run's time is from its begin to the begin of what follows, as in step records; runs follow each other in a
/// CUDA graph, over operands that are cold. The first calls are not measured.
std::vector<double> measure_kernel_us(KernelOperands& operands, const KernelCase& c, int32_t repetitions);

/// What hardware counters say of one run of a case, over cold operands; not of sample, which a step does itself. After
/// measure_kernel_us(). An error text; empty: none.
std::string count_kernel(KernelOperands& operands, const KernelCase& c, OpCounters& out);

}  // namespace minfer
