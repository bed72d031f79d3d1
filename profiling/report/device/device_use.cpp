#include "profiling/report/device/device_use.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace minfer {
namespace {

/// Takes `us` out of what is left, or all of it.
double taken(double& left_us, double us) {
  const double part = std::clamp(us, 0.0, left_us);
  left_us -= part;
  return part;
}

/// Blocks for each multiprocessor: waves x blocks that fit on one.
double sm_share(const KernelLaunch& launch) {
  return std::min(1.0, launch.waves * launch.blocks_per_sm);
}

/// Threads on a multiprocessor of those that it holds: of less than one wave, that part of the theoretical occupancy.
double occupancy_of(const KernelLaunch& launch) {
  return launch.occupancy * std::min(1.0, launch.waves);
}

/// The mean over an op's launches with a known value, weighted by their steps; negative: none is known.
template <class Of>
double mean_of_launches(const OpAggregate& op, const std::vector<KernelLaunch>& launches, const Of& of) {
  double sum = 0.0, steps_of_all = 0.0;
  for (const auto& [index, steps] : op.launches) {
    const KernelLaunch& launch = launches.at(static_cast<size_t>(index));
    if (launch.blocks_per_sm == 0) continue;
    sum += of(launch) * static_cast<double>(steps);
    steps_of_all += static_cast<double>(steps);
  }
  return steps_of_all > 0.0 ? sum / steps_of_all : -1.0;
}

}  // namespace

double add_host_work(const StepSummary& step, double us) {
  for (const HostSpan span : {HostSpan::draft, HostSpan::schedule, HostSpan::build, HostSpan::commit,
                              HostSpan::mask, HostSpan::detokenise, HostSpan::respond})
    us += step.host_us[static_cast<size_t>(span)];
  return us;
}

void StepBreakdown::add(const StepBreakdown& other) {
  kernel_us += other.kernel_us;
  memcpy_us += other.memcpy_us;
  memset_us += other.memset_us;
  communication_us += other.communication_us;
  launch_us += other.launch_us;
  host_us += other.host_us;
  idle_us += other.idle_us;
}

StepBreakdown breakdown_of(const StepSummary& step, const std::vector<std::string>& transfers) {
  double copied_us = 0.0;
  for (const OpSummary& op : step.ops) {
    if (std::ranges::find(transfers, op.op) != transfers.end()) copied_us += op.us;
  }
  double left_us = step.wall_us;
  StepBreakdown parts;
  parts.kernel_us = taken(left_us, step.gpu_us - copied_us);
  parts.memcpy_us = taken(left_us, copied_us);
  const double launch_us = step.host_us[static_cast<size_t>(HostSpan::launch)];
  parts.launch_us = taken(left_us, step.on_device ? step.idle_host_us : launch_us);
  parts.host_us = taken(left_us, add_host_work(step, step.on_device ? launch_us : 0.0));
  parts.idle_us = left_us;
  return parts;
}

Table breakdown_table(std::string title, const std::array<StepBreakdown, 3>& by_phase) {
  Table table{std::move(title), {"phase", "kernel", "memcpy", "memset", "comm.", "launch", "host", "idle"}};
  const auto add = [&](std::string phase, const StepBreakdown& parts) {
    const std::array times{parts.kernel_us, parts.memcpy_us, parts.memset_us, parts.communication_us,
                           parts.launch_us, parts.host_us,   parts.idle_us};
    const double wall_us = std::accumulate(times.begin(), times.end(), 0.0);
    if (wall_us <= 0.0) return;
    std::vector<std::string>& row = table.rows.emplace_back();
    row.push_back(std::move(phase));
    for (const double us : times)
      row.push_back(percent(us, wall_us));
  };
  StepBreakdown all;
  for (size_t i = 0; i < by_phase.size(); ++i) {
    add(std::string(name(static_cast<StepPhase>(i))), by_phase[i]);
    all.add(by_phase[i]);
  }
  if (table.rows.size() > 1) add("all", all);
  return table;
}

DeviceUse device_use(const Aggregate& sum, const std::vector<KernelLaunch>& launches,
                     const std::vector<RangeLine>& ranges, const CounterAggregate& counters) {
  DeviceUse use;
  if (sum.all.wall_us > 0.0) use.utilisation = std::min(1.0, sum.all.gpu_us / sum.all.wall_us);
  double busy_us = 0.0, idle_us = 0.0;
  for (const RangeLine& range : ranges) {
    busy_us += range.busy_us;
    idle_us += range.idle_us;
  }
  if (busy_us > 0.0) use.traced_utilisation = busy_us / (busy_us + idle_us);
  double known_us = 0.0, sm_us = 0.0, occupied_us = 0.0;
  for (const OpAggregate& op : sum.ops) {
    const double share = mean_of_launches(op, launches, sm_share);
    if (share < 0.0) continue;
    known_us += op.us;
    sm_us += op.us * share;
    occupied_us += op.us * mean_of_launches(op, launches, occupancy_of);
  }
  if (known_us > 0.0) {
    use.sm_efficiency = std::min(1.0, sm_us / sum.all.wall_us);
    use.occupancy = occupied_us / known_us;
  }
  use.measured_sm_active = mean_share(counters, Counter::sm_active);
  use.measured_warps_active = mean_share(counters, Counter::warps_active);
  return use;
}

Table device_use_table(const DeviceUse& use) {
  Table table{"How the device was filled (%)", {"", "estimated", "measured"}};
  const auto add = [&](std::string_view what, double estimated, double measured) {
    if (std::isfinite(estimated) || std::isfinite(measured))
      table.add(what, percent(estimated, 1.0), percent(measured, 1.0));
  };
  add("GPU utilisation: a kernel runs (ops; kernels of a range)", use.utilisation, use.traced_utilisation);
  add("SM efficiency: multiprocessors with a block (counters)", use.sm_efficiency, use.measured_sm_active);
  add("achieved occupancy: warps of those that fit (counters)", use.occupancy, use.measured_warps_active);
  return table;
}

}  // namespace minfer
