#pragma once

#include <string>
#include <vector>

#include "kernels/bench/kernel_operands.h"

namespace minfer {

/// Microseconds of each run of a case, over `repetitions` steps of many runs each (sample: several steps of
/// one run). A run's time is from its begin to the begin of what follows, as in step records. Runs follow each
/// other in a CUDA graph, over cold operands. The first calls are not measured.
std::vector<double> measure_kernel_us(KernelOperands& operands, const KernelCase& c, int32_t repetitions);

/// Hardware counters of one run of a case, over cold operands; not for sample, which a step does itself. Call it after
/// measure_kernel_us(). Returns an error text; empty: no error.
std::string count_kernel(KernelOperands& operands, const KernelCase& c, OpCounters& out);

}  // namespace minfer
