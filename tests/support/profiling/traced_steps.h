#pragma once

#include <vector>

#include "kernels/op.h"
#include "profiling/trace/range_trace.h"

namespace minfer::test {

/// Ops of a small step: "norm" (id 0), "product" (1), "norm" again (2), and "unused" (3), which never runs.
std::vector<OpInfo> traced_ops();
/// The launch table of these ops: kernels norm, product and reduce.
std::vector<KernelLaunch> traced_launches();
/// One step: norm, product (which launches two kernels) and norm begin 1.5, 7.5 and 19.5 us behind `begin_ns`; it ends at 24.2 us.
StepStamps traced_stamps(int64_t begin_ns = 0);
/// A kernel with this name index, launched at an unknown time.
DeviceActivity traced_activity(int32_t name, int64_t begin_ns, int64_t end_ns);
/// Steps 10 to 9 + `count` as a backend's tracer would deliver them. Each is a graph of four kernels of 5 us, 1 us apart, followed by
/// a copy of 512 bytes. Before the first step are a kernel of no step and one of the profiler's own; the profiler launched another one
/// in the window of the first step. Four records were dropped.
RangeTrace traced_range(int64_t count);
/// The same with a second rank, on device 1. Each of its kernels begins 2 us later. Its table of launches begins with the last kernel, and
/// has a launch that the first rank's table lacks and that no kernel made.
RangeTrace traced_range_of_two(int64_t count);

}  // namespace minfer::test
