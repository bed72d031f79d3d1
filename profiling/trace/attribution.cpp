#include "profiling/trace/range_analysis.h"

#include <algorithm>
#include <cmath>

namespace minfer {
namespace {

double share(const Attribution& sum, double OpDifference::*part) {
  double total = 0.0;
  for (const OpDifference& op : sum.ops)
    total += op.*part;
  return sum.step_us > 0.0 ? total / sum.step_us : 0.0;
}

}  // namespace

double Attribution::difference() const {
  return share(*this, &OpDifference::difference_us);
}

double Attribution::own_difference() const {
  return share(*this, &OpDifference::own_difference_us);
}

AttributionSum::AttributionSum(std::span<const OpInfo> ops) : ops_(ops) {
  for (const OpInfo& info : ops) {
    const auto found = std::ranges::find(sum_.ops, info.name, &OpDifference::op);
    sum_of_.push_back(static_cast<size_t>(found - sum_.ops.begin()));
    if (found == sum_.ops.end()) sum_.ops.emplace_back().op = info.name;
  }
}

void AttributionSum::add(const StepStamps& stamps, const StepTrace& trace) {
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
  ++sum_.steps;
  sum_.step_us += us_of(stamps.end_ns - stamps.ops.front().begin_ns);
  for (size_t run = 0; run < stamps.ops.size(); ++run) {
    const StepStamps::Stamp& stamp = stamps.ops[run];
    if (stamp.op < 0 || static_cast<size_t>(stamp.op) >= ops_.size()) continue;
    const int64_t end_ns = run + 1 < stamps.ops.size() ? stamps.ops[run + 1].begin_ns : stamps.end_ns;
    const int64_t interval_ns = std::max<int64_t>(0, end_ns - stamp.begin_ns);
    OpDifference& op = sum_.ops[sum_of_[static_cast<size_t>(stamp.op)]];
    ++op.runs;
    op.stamped_us += us_of(interval_ns);
    op.kernel_us += us_of(kernels[run].duration_ns);
    op.own_us += us_of(kernels[run].own_ns);
    op.difference_us += us_of(std::abs(interval_ns - kernels[run].duration_ns));
    op.own_difference_us += us_of(std::abs(interval_ns - kernels[run].own_ns));
  }
}

Attribution AttributionSum::result() const {
  Attribution result = sum_;
  std::erase_if(result.ops, [](const OpDifference& op) { return op.runs == 0; });
  std::ranges::stable_sort(result.ops, std::ranges::greater{}, &OpDifference::stamped_us);
  return result;
}

}  // namespace minfer
