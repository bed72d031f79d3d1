#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "profiling/chrome_trace/trace_events.h"
#include "profiling/summary/summary.h"
#include "profiling/trace/range_analysis.h"

namespace minfer {

/// The source of the begins and ends of a step's ops.
enum class OpTimes : uint8_t {
  none,     ///< the step has no ops
  kernels,  ///< the times of their kernels
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

/// The times of a step's ops. `kernels`: of the step, by begin. An op then has the time from its first kernel to its last, minus
/// the time in which an earlier kernel ran. Otherwise the ops are laid end to end: on a device they end with the step, on the CPU they
/// begin when the host had launched. The record lacks the idle time between them, so it shows in front of or behind them.
OpTimeline place_ops(const StepSummary& step, std::span<const KernelLine> kernels);

}  // namespace minfer
