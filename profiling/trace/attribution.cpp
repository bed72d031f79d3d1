#include <algorithm>
#include <cmath>

#include "profiling/trace/range_analysis.h"

namespace minfer {
namespace {

double share(const Attribution& sum, double OpDifference::*part) {
  double total = 0.0;
  for (const OpDifference& op : sum.ops)
    total += op.*part;
  return sum.step_us > 0.0 ? total / sum.step_us : 0.0;
}

void add_step(Attribution& sum, std::span<const size_t> sum_of, const StepStamps& stamps,
              const StepTrace& trace) {
  if (stamps.ops.empty()) return;
  struct Kernels {
    int64_t duration_ns = 0;
    int64_t own_ns = 0;
  };
  std::vector<Kernels> kernels(stamps.ops.size());
  for (const TracedActivity& activity : trace.activities) {
    if (activity.run < 0 || static_cast<size_t>(activity.run) >= kernels.size()) continue;
    kernels[static_cast<size_t>(activity.run)].duration_ns += activity.duration_ns;
    kernels[static_cast<size_t>(activity.run)].own_ns += activity.own_ns;
  }
  ++sum.steps;
  sum.step_us += us_of(stamps.end_ns - stamps.ops.front().begin_ns);
  for (size_t run = 0; run < stamps.ops.size(); ++run) {
    const StepStamps::Stamp& stamp = stamps.ops[run];
    if (stamp.op < 0 || static_cast<size_t>(stamp.op) >= sum_of.size()) continue;
    const int64_t end_ns = run + 1 < stamps.ops.size() ? stamps.ops[run + 1].begin_ns : stamps.end_ns;
    const int64_t interval_ns = std::max<int64_t>(0, end_ns - stamp.begin_ns);
    OpDifference& op = sum.ops[sum_of[static_cast<size_t>(stamp.op)]];
    ++op.runs;
    op.stamped_us += us_of(interval_ns);
    op.kernel_us += us_of(kernels[run].duration_ns);
    op.own_us += us_of(kernels[run].own_ns);
    op.difference_us += us_of(std::abs(interval_ns - kernels[run].duration_ns));
    op.own_difference_us += us_of(std::abs(interval_ns - kernels[run].own_ns));
  }
}

}  // namespace

double Attribution::difference() const {
  return share(*this, &OpDifference::difference_us);
}

double Attribution::own_difference() const {
  return share(*this, &OpDifference::own_difference_us);
}

Attribution attribution_of(std::span<const OpInfo> ops, std::span<const TracedStep> steps,
                           std::span<const StepTrace> traces) {
  Attribution sum;
  std::vector<size_t> sum_of;  // by OpId: ops of one name share a sum
  for (const OpInfo& info : ops) {
    const auto found = std::ranges::find(sum.ops, info.name, &OpDifference::op);
    sum_of.push_back(static_cast<size_t>(found - sum.ops.begin()));
    if (found == sum.ops.end()) sum.ops.emplace_back().op = info.name;
  }
  for (size_t i = 0; i < steps.size(); ++i)
    add_step(sum, sum_of, steps[i].stamps, traces[i]);
  std::erase_if(sum.ops, [](const OpDifference& op) { return op.runs == 0; });
  std::ranges::stable_sort(sum.ops, std::ranges::greater{}, &OpDifference::stamped_us);
  return sum;
}

}  // namespace minfer
