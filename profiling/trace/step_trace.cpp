#include "profiling/trace/step_trace.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_map>

namespace minfer {
namespace {

/// The number of a name that a table gives by index.
int32_t number_of(const std::vector<int32_t>& numbers, int32_t index, int32_t otherwise) {
  const bool is_known = index >= 0 && static_cast<size_t>(index) < numbers.size();
  return is_known ? numbers[static_cast<size_t>(index)] : otherwise;
}

/// By launch of the step, the op run that made it.
std::vector<int32_t> runs_of_launches(const StepStamps& stamps) {
  std::vector<int32_t> runs;
  runs.reserve(stamps.launches.size());
  for (size_t run = 0; run < stamps.ops.size(); ++run) {
    const size_t behind = runs.size() + static_cast<size_t>(std::max(0, stamps.ops[run].num_launches));
    runs.resize(std::min(behind, stamps.launches.size()), static_cast<int32_t>(run));
  }
  runs.resize(stamps.launches.size(), -1);
  return runs;
}

/// Gives the kernels their launches and ops.
void match_kernels(StepTrace& trace, const StepStamps& stamps, const NameNumbers& names) {
  constexpr int32_t kNoName = -2;  // fits nothing but kAnyName
  std::vector<TracedActivity*> kernels;
  std::vector<int32_t> record_names, launch_names;
  for (TracedActivity& activity : trace.activities) {
    if (activity.kind != ActivityKind::kernel) continue;
    kernels.push_back(&activity);
    record_names.push_back(number_of(names.of_record, activity.name, kNoName));
  }
  for (const int32_t launch : stamps.launches)
    launch_names.push_back(number_of(names.of_launch, launch, kAnyName));
  const std::vector<int32_t> runs = runs_of_launches(stamps);
  const LaunchMatch match = match_launches(record_names, launch_names);
  for (size_t i = 0; i < kernels.size(); ++i) {
    if (match.launch_of[i] < 0) continue;
    const auto place = static_cast<size_t>(match.launch_of[i]);
    kernels[i]->run = runs[place];
    kernels[i]->launch = stamps.launches[place];
  }
  trace.unmatched = match.unmatched;
  trace.missing = match.missing;
}

/// Overlap, gaps and their causes, in one pass over what is ordered by begin.
void set_times(StepTrace& trace, std::span<const DeviceActivity> activities) {
  int64_t any_end = 0, kernel_end = 0, op_end = 0;
  for (size_t i = 0; i < activities.size(); ++i) {
    const DeviceActivity& record = activities[i];
    TracedActivity& activity = trace.activities[i];
    const bool is_first = i == 0;
    activity.own_ns = std::max<int64_t>(
        0, record.end_ns - (is_first ? record.begin_ns : std::max(record.begin_ns, any_end)));
    activity.gap_ns = is_first ? 0 : std::max<int64_t>(0, record.begin_ns - any_end);
    activity.gap_cause = gap_cause(is_first, activity.gap_ns, record.launch_ns, any_end);
    any_end = is_first ? record.end_ns : std::max(any_end, record.end_ns);
    if (record.kind != ActivityKind::kernel) continue;
    if (kernel_end == 0) kernel_end = record.begin_ns;
    const int64_t idle_ns = std::max<int64_t>(0, record.begin_ns - kernel_end);
    trace.idle_ns += idle_ns;
    if (record.launch_ns > kernel_end) trace.host_wait_ns += idle_ns;
    trace.busy_ns += std::max<int64_t>(0, record.end_ns - std::max(record.begin_ns, kernel_end));
    kernel_end = std::max(kernel_end, record.end_ns);
    if (activity.run < 0) continue;
    trace.attributed_ns += std::max<int64_t>(0, record.end_ns - std::max(record.begin_ns, op_end));
    op_end = std::max(op_end, record.end_ns);
  }
}

}  // namespace

std::string_view name(GapCause cause) {
  static constexpr std::array<std::string_view, 5> kNames{"none", "start", "host", "device", "unknown"};
  return kNames[static_cast<size_t>(cause)];
}

GapCause gap_cause(bool is_first, int64_t gap_ns, int64_t launch_ns, int64_t front_end_ns) {
  if (is_first) return GapCause::start;
  if (gap_ns <= 0) return GapCause::none;
  if (launch_ns <= 0) return GapCause::unknown;
  return launch_ns > front_end_ns ? GapCause::host : GapCause::device;
}

NameNumbers number_names(std::span<const std::string> record_names, std::span<const KernelLaunch> launches) {
  std::unordered_map<std::string_view, int32_t> numbers;
  const auto number = [&](std::string_view name) {
    return numbers.try_emplace(name, static_cast<int32_t>(numbers.size())).first->second;
  };
  NameNumbers result;
  for (const std::string& name : record_names)
    result.of_record.push_back(number(name));
  for (const KernelLaunch& launch : launches)
    result.of_launch.push_back(launch.kernel.empty() ? kAnyName : number(launch.kernel));
  return result;
}

StepTrace place(int64_t step, const StepStamps& stamps, std::span<const DeviceActivity> activities,
                const NameNumbers& names) {
  StepTrace trace;
  trace.step = step;
  trace.activities.reserve(activities.size());
  for (const DeviceActivity& record : activities) {
    trace.activities.push_back(
        {.kind = record.kind,
         .name = record.name,
         .stream = record.stream,
         .in_graph = record.graph_node >= 0,
         .begin_ns = record.begin_ns,
         .duration_ns = record.end_ns - record.begin_ns,
         .delay_ns = record.launch_ns > 0 ? std::max<int64_t>(0, record.begin_ns - record.launch_ns) : -1,
         .bytes = record.bytes});
  }
  match_kernels(trace, stamps, names);
  set_times(trace, activities);
  return trace;
}

}  // namespace minfer
