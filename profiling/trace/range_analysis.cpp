#include "profiling/trace/range_analysis.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "profiling/report/summary.h"

namespace minfer {
namespace {

/// The activities of each of `steps`; those of no step are counted.
std::vector<std::vector<DeviceActivity>> split(const std::vector<DeviceActivity>& activities,
                                               const std::vector<TracedStep>& steps, int64_t& outside) {
  std::unordered_map<int64_t, size_t> places;
  for (size_t i = 0; i < steps.size(); ++i)
    places.emplace(steps[i].step, i);
  std::vector<std::vector<DeviceActivity>> of_step(steps.size());
  for (const DeviceActivity& activity : activities) {
    const auto place = places.find(activity.step);
    place == places.end() ? void(++outside) : of_step[place->second].push_back(activity);
  }
  return of_step;
}

void add(RangeLine& line, const StepTrace& trace) {
  const auto num_kernels = std::ranges::count(trace.activities, ActivityKind::kernel, &TracedActivity::kind);
  line.kernels += num_kernels;
  line.copies += std::ssize(trace.activities) - num_kernels;
  line.unmatched += trace.unmatched;
  line.missing += trace.missing;
  line.busy_us += us_of(trace.busy_ns);
  line.idle_us += us_of(trace.idle_ns);
  line.host_wait_us += us_of(trace.host_wait_ns);
}

}  // namespace

RangeAnalysis::RangeAnalysis(RangeTrace range, std::span<const OpInfo> ops)
    : ops_(ops.begin(), ops.end()), traced_(std::move(range.steps)) {
  line_.error = std::move(range.error);
  line_.first_step = traced_.empty() ? range.first_step : traced_.front().step;
  line_.last_step = traced_.empty() ? range.first_step - 1 : traced_.back().step;
  if (!line_.error.empty()) return;
  DeviceTrace trace = join(std::move(range.records));
  line_.steps = std::ssize(traced_);
  line_.dropped = trace.dropped;
  line_.invalid = trace.invalid;
  line_.overhead_us = us_of(trace.overhead_ns);
  line_.own_clock = trace.own_clock;
  const NameNumbers numbers = number_names(trace.names, range.launches);
  const auto of_step = split(trace.activities, traced_, line_.outside);
  AttributionSum sum(ops_);
  for (size_t i = 0; i < traced_.size(); ++i) {
    const TracedStep& step = traced_[i];
    const StepTrace& placed = steps_.emplace_back(place(step.step, step.stamps, of_step[i], numbers));
    add(line_, placed);
    sum.add(step.stamps, placed);
  }
  line_.attribution = sum.result();
  names_ = std::move(trace.names);
}

void RangeAnalysis::for_each_kernel(const std::function<void(const KernelLine&)>& visit) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const TracedActivity& activity : steps_[i].activities)
      visit(kernel_line(traced_[i], activity));
  }
}

KernelLine RangeAnalysis::kernel_line(const TracedStep& step, const TracedActivity& activity) const {
  KernelLine line;
  line.step = step.step;
  line.kind = activity.kind;
  if (activity.run >= 0) {
    const OpId op = step.stamps.ops[static_cast<size_t>(activity.run)].op;
    if (op >= 0 && static_cast<size_t>(op) < ops_.size()) {
      const OpInfo& info = ops_[static_cast<size_t>(op)];
      line.op = info.name;
      line.layer = info.layer;
      line.phase = op_phase(info.scope, step.shape);
    }
  }
  if (activity.name >= 0 && static_cast<size_t>(activity.name) < names_.size())
    line.kernel = names_[static_cast<size_t>(activity.name)];
  line.launch = activity.launch;
  line.stream = activity.stream;
  line.in_graph = activity.in_graph;
  line.start_ns = activity.begin_ns;
  line.us = us_of(activity.duration_ns);
  line.own_us = us_of(activity.own_ns);
  line.gap_us = us_of(activity.gap_ns);
  if (activity.delay_ns >= 0) line.launch_delay_us = us_of(activity.delay_ns);
  line.bytes = activity.bytes;
  return line;
}

}  // namespace minfer
