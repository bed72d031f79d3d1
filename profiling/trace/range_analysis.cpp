#include "profiling/trace/range_analysis.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "profiling/record/phase_split.h"

namespace minfer {
namespace {

/// The activities of each of `steps`, and behind those the ones of no step.
std::vector<std::vector<DeviceActivity>> split(const std::vector<DeviceActivity>& activities,
                                               const std::vector<TracedStep>& steps) {
  std::unordered_map<int64_t, size_t> places;
  for (size_t i = 0; i < steps.size(); ++i)
    places.emplace(steps[i].step, i);
  std::vector<std::vector<DeviceActivity>> of_step(steps.size() + 1);
  for (const DeviceActivity& activity : activities) {
    const auto place = places.find(activity.step);
    of_step[place == places.end() ? steps.size() : place->second].push_back(activity);
  }
  return of_step;
}

int64_t num_kernels(const StepTrace& trace) {
  return std::ranges::count(trace.activities, ActivityKind::kernel, &TracedActivity::kind);
}

void add(RangeLine& line, const StepTrace& trace) {
  const int64_t kernels = num_kernels(trace);
  line.kernels += kernels;
  line.copies += std::ssize(trace.activities) - kernels;
  line.unmatched += trace.unmatched;
  line.missing += trace.missing;
  line.busy_us += us_of(trace.busy_ns);
  line.idle_us += us_of(trace.idle_ns);
  line.host_wait_us += us_of(trace.host_wait_ns);
}

void add(GapSum& sum, int64_t gap_ns) {
  ++sum.gaps;
  sum.us += us_of(gap_ns);
}

/// The sum of `sums`, a RangeIdle or an OpGaps, that a cause within a step counts for; null: none.
template <class Sums>
GapSum* sum_of(Sums& sums, GapCause cause) {
  if (cause == GapCause::host) return &sums.host;
  if (cause == GapCause::device) return &sums.device;
  return cause == GapCause::unknown ? &sums.unknown : nullptr;
}

int64_t last_end(const StepTrace& trace) {
  int64_t end = 0;
  for (const TracedActivity& activity : trace.activities)
    end = std::max(end, activity.end_ns());
  return end;
}

/// The key by which launches of two ranks are the same kind.
auto key_of(const KernelLaunch& launch) {
  return std::tie(launch.kernel, launch.path, launch.grid, launch.block, launch.cluster,
                  launch.dynamic_shared_bytes);
}

/// For each of `launches`, the index of an equal launch among `others`, or -1.
std::vector<int32_t> places_among(const std::vector<KernelLaunch>& launches,
                                  const std::vector<KernelLaunch>& others) {
  std::map<decltype(key_of(launches.front())), int32_t> places;
  for (size_t i = 0; i < others.size(); ++i)
    places.emplace(key_of(others[i]), static_cast<int32_t>(i));
  std::vector<int32_t> found;
  for (const KernelLaunch& launch : launches) {
    const auto place = places.find(key_of(launch));
    found.push_back(place == places.end() ? -1 : place->second);
  }
  return found;
}

/// The name of a kernel, or what else it is.
std::string activity_name(ActivityKind kind, int32_t name, const std::vector<std::string>& names) {
  const bool is_named = name >= 0 && static_cast<size_t>(name) < names.size();
  return is_named ? names[static_cast<size_t>(name)] : std::string(minfer::name(kind));
}

}  // namespace

RangeAnalysis::RangeAnalysis(RangeTrace range, std::span<const OpInfo> ops)
    : ops_(ops.begin(), ops.end()), traced_(std::move(range.steps)) {
  line_.rank = range.rank;
  line_.error = std::move(range.error);
  line_.first_step = traced_.empty() ? range.first_step : traced_.front().step;
  line_.last_step = traced_.empty() ? range.first_step - 1 : traced_.back().step;
  if (!line_.error.empty()) return;
  DeviceTrace trace = join(std::move(range.records));
  line_.steps = std::ssize(traced_);
  line_.dropped = trace.dropped;
  line_.invalid = trace.invalid;
  line_.of_profiler = trace.of_profiler;
  line_.overhead_us = us_of(trace.overhead_ns);
  line_.own_clock = trace.own_clock;
  if (line_.rank > 0) file_launch_of_ = places_among(range.launches, range.file_launches);
  const NameNumbers numbers = number_names(trace.names, range.launches);
  const auto of_step = split(trace.activities, traced_);
  line_.outside = std::ssize(of_step.back());
  for (size_t i = 0; i < traced_.size(); ++i) {
    const TracedStep& step = traced_[i];
    add(line_, steps_.emplace_back(place(step.step, step.stamps, of_step[i], numbers)));
  }
  line_.attribution = attribution_of(ops_, traced_, steps_);
  names_ = std::move(trace.names);
  set_gaps_between_steps();
  add_idle_time();
  name_strangers(of_step.back());
}

/// A step's first activity follows the last one of the step in front.
void RangeAnalysis::set_gaps_between_steps() {
  for (size_t i = 1; i < steps_.size(); ++i) {
    const StepTrace& front = steps_[i - 1];
    if (front.activities.empty() || steps_[i].activities.empty() || front.step + 1 != steps_[i].step)
      continue;
    TracedActivity& first = steps_[i].activities.front();
    first.gap_ns = std::max<int64_t>(0, first.begin_ns - last_end(front));
    if (first.gap_ns > 0) add(line_.idle.start, first.gap_ns);
  }
}

void RangeAnalysis::add_idle_time() {
  std::map<std::string, OpGaps> ops;
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const TracedActivity& activity : steps_[i].activities) {
      GapSum* sum = sum_of(line_.idle, activity.gap_cause);
      if (sum == nullptr) continue;
      add(*sum, activity.gap_ns);
      const OpInfo* info = op_of(traced_[i], activity);
      const std::string op =
          info != nullptr ? info->name : activity_name(activity.kind, activity.name, names_);
      add(*sum_of(ops[op], activity.gap_cause), activity.gap_ns);
    }
  }
  for (auto& [op, gaps] : ops) {
    gaps.op = op;
    line_.idle.ops.push_back(std::move(gaps));
  }
  std::ranges::stable_sort(line_.idle.ops, std::ranges::greater{}, &OpGaps::us);
}

void RangeAnalysis::name_strangers(const std::vector<DeviceActivity>& outside) {
  std::map<std::string, Stranger> strangers;
  for (const DeviceActivity& activity : outside)
    ++strangers[activity_name(activity.kind, activity.name, names_)].outside;
  for (const StepTrace& step : steps_) {
    for (const TracedActivity& activity : step.activities) {
      if (activity.kind == ActivityKind::kernel && activity.launch < 0 && activity.run < 0)
        ++strangers[activity_name(activity.kind, activity.name, names_)].unmatched;
    }
  }
  for (auto& [kernel, stranger] : strangers) {
    stranger.kernel = kernel;
    line_.strangers.push_back(std::move(stranger));
  }
  std::ranges::stable_sort(line_.strangers, std::ranges::greater{},
                           [](const Stranger& stranger) { return stranger.unmatched + stranger.outside; });
  if (line_.strangers.size() > kMostStrangers) line_.strangers.resize(kMostStrangers);
}

void RangeAnalysis::for_each_step(const std::function<void(const StepKernels&)>& visit) const {
  for (const StepTrace& trace : steps_) {
    visit({.step = trace.step,
           .rank = line_.rank,
           .kernels = num_kernels(trace),
           .unmatched = trace.unmatched,
           .missing = trace.missing,
           .busy_us = us_of(trace.busy_ns),
           .attributed_us = us_of(trace.attributed_ns),
           .idle_us = us_of(trace.idle_ns),
           .host_wait_us = us_of(trace.host_wait_ns)});
  }
}

void RangeAnalysis::for_each_kernel(const std::function<void(const KernelLine&)>& visit) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    for (const TracedActivity& activity : steps_[i].activities)
      visit(kernel_line(traced_[i], activity));
  }
}

const OpInfo* RangeAnalysis::op_of(const TracedStep& step, const TracedActivity& activity) const {
  if (activity.run < 0) return nullptr;
  const OpId op = step.stamps.ops[static_cast<size_t>(activity.run)].op;
  return op >= 0 && static_cast<size_t>(op) < ops_.size() ? &ops_[static_cast<size_t>(op)] : nullptr;
}

KernelLine RangeAnalysis::kernel_line(const TracedStep& step, const TracedActivity& activity) const {
  KernelLine line;
  line.step = step.step;
  line.rank = line_.rank;
  line.kind = activity.kind;
  if (const OpInfo* info = op_of(step, activity)) {
    line.op = info->name;
    line.layer = info->layer;
    line.phase = op_phase(info->scope, step.shape);
  }
  if (activity.name >= 0 && static_cast<size_t>(activity.name) < names_.size())
    line.kernel = names_[static_cast<size_t>(activity.name)];
  line.launch = activity.launch;
  if (line.launch >= 0 && line_.rank > 0) {
    const auto launch = static_cast<size_t>(line.launch);
    line.launch = launch < file_launch_of_.size() ? file_launch_of_[launch] : -1;
  }
  line.stream = activity.stream;
  line.in_graph = activity.in_graph;
  line.start_ns = activity.begin_ns;
  line.us = us_of(activity.duration_ns);
  line.own_us = us_of(activity.own_ns);
  line.gap_us = us_of(activity.gap_ns);
  line.gap_cause = activity.gap_cause;
  if (activity.delay_ns >= 0) line.launch_delay_us = us_of(activity.delay_ns);
  line.bytes = activity.bytes;
  return line;
}

}  // namespace minfer
