#include "profiling/chrome_trace/op_timeline.h"

#include <algorithm>
#include <array>
#include <limits>

namespace minfer {
namespace {

TimeSpan clipped(TimeSpan span, const TimeSpan& bounds) {
  span.begin_ns = std::clamp(span.begin_ns, bounds.begin_ns, bounds.end_ns);
  span.end_ns = std::clamp(span.end_ns, span.begin_ns, bounds.end_ns);
  return span;
}

void place_by_kernels(OpTimeline& timeline, std::span<const KernelLine> kernels) {
  int64_t busy_until_ns = std::numeric_limits<int64_t>::min();
  for (const KernelLine& kernel : kernels) {
    const TimeSpan own = take_own(span_of(kernel), busy_until_ns);
    if (!kernel.phase) continue;
    if (!timeline.ops.empty()) {
      PlacedOp& last = timeline.ops.back();
      if (last.op == kernel.op && last.layer == kernel.layer && last.phase == *kernel.phase) {
        last.span.end_ns = own.end_ns;
        continue;
      }
    }
    timeline.ops.push_back({kernel.op, kernel.layer, *kernel.phase, own});
  }
}

/// Lays durations end to end; `ops` has the ops with spans that begin at 0.
void lay_end_to_end(OpTimeline& timeline, const StepSummary& step, std::span<const double> durations_us) {
  double total_us = 0.0;
  for (const double us : durations_us)
    total_us += us;
  const TimeSpan bounds = span_of(step);
  double launched_us = 0.0;
  for (const HostSpan span : {HostSpan::draft, HostSpan::schedule, HostSpan::build, HostSpan::launch})
    launched_us += step.host_us[static_cast<size_t>(span)];
  const int64_t begin_ns =
      step.on_device ? bounds.end_ns - ns_of(total_us) : later_ns(bounds.begin_ns, ns_of(launched_us));
  double us = 0.0;
  for (size_t i = 0; i < timeline.ops.size(); ++i) {
    const int64_t op_begin_ns = later_ns(begin_ns, ns_of(us));
    us += durations_us[i];
    timeline.ops[i].span = {op_begin_ns, later_ns(begin_ns, ns_of(us))};
  }
}

}  // namespace

std::string_view name(OpTimes times) {
  static constexpr std::array<std::string_view, 4> kNames{
      "none", "kernels", "stamps by layer, laid end to end", "stamps summed over layers, laid end to end"};
  return kNames[static_cast<size_t>(times)];
}

TimeSpan span_of(const StepSummary& step) {
  return span_of(step.start_ns, step.wall_us);
}

TimeSpan span_of(const KernelLine& kernel) {
  return span_of(kernel.start_ns, kernel.us);
}

OpTimeline place_ops(const StepSummary& step, std::span<const KernelLine> kernels) {
  OpTimeline timeline;
  std::vector<double> durations_us;
  place_by_kernels(timeline, kernels);
  if (!timeline.ops.empty()) {
    timeline.times = OpTimes::kernels;
  } else if (!step.layers.empty()) {
    timeline.times = OpTimes::layers;
    for (const LayerOp& op : step.layers) {
      timeline.ops.push_back({op.op, op.layer, op.phase, {}});
      durations_us.push_back(op.us);
    }
    lay_end_to_end(timeline, step, durations_us);
  } else if (!step.ops.empty()) {
    timeline.times = OpTimes::sums;
    for (const OpSummary& op : step.ops) {
      timeline.ops.push_back({op.op, -1, op.phase, {}});
      durations_us.push_back(op.us);
    }
    lay_end_to_end(timeline, step, durations_us);
  }
  for (PlacedOp& op : timeline.ops)
    op.span = clipped(op.span, span_of(step));
  return timeline;
}

}  // namespace minfer
