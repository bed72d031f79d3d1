#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "profiling/chrome_trace/trace_events.h"
#include "profiling/report/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// Where the begin and end of a step's ops come from.
enum class OpTimes : uint8_t {
  none,     ///< the step has no ops
  kernels,  ///< of their kernels
  layers,   ///< their durations by layer, laid end to end in the order they ran
  sums,     ///< their durations summed over layers, laid end to end in the order they first ran
};
std::string_view name(OpTimes times);

/// A run of an op; views of the step or its kernels.
struct PlacedOp {
  std::string_view op;
  int32_t layer = -1;
  StepPhase phase = StepPhase::decode;
  TimeSpan span;
};

struct OpTimeline {
  OpTimes times = OpTimes::none;
  std::vector<PlacedOp> ops;  ///< in order, without overlap, within the step
};

/// From the step's begin to its end on the host's clock.
TimeSpan span_of(const StepSummary& step);
/// From a kernel's begin to its end.
TimeSpan span_of(const KernelLine& kernel);

/// When the ops of a step ran. `kernels`: of the step, by begin; an op then has the time from its first kernel to its last, less
/// that in which one ran that had begun before. Ops laid end to end end with the step on a device; on the CPU they begin when the host
/// had launched: what they idled in between is not in the record, and shown in front of or behind them.
OpTimeline place_ops(const StepSummary& step, std::span<const KernelLine> kernels);

}  // namespace minfer
