#pragma once

#include <array>
#include <string>
#include <vector>

#include "profiling/report/aggregate.h"
#include "profiling/report/device/counters_report.h"
#include "profiling/report/text/table.h"

namespace minfer {

/// Wall time of steps by what ran, each instant counted once for the first of these that did: they add up to the wall time. By tier 0,
/// where the host's spans are known by their length alone: `host_us` is the most that it can be, `idle_us` the least.
struct StepBreakdown {
  double kernel_us = 0.0;
  double memcpy_us = 0.0;
  double memset_us = 0.0;         ///< tier 0 sees none by itself
  double communication_us = 0.0;  ///< the same
  double launch_us = 0.0;         ///< the device waited for the host to launch
  double host_us = 0.0;           ///< the host worked, and nothing was launched
  double idle_us = 0.0;

  void add(const StepBreakdown& other);
  double all_us() const {
    return kernel_us + memcpy_us + memset_us + communication_us + launch_us + host_us + idle_us;
  }
};
/// `transfers`: ops that copy between host and device.
StepBreakdown breakdown_of(const StepSummary& step, const std::vector<std::string>& transfers);
/// A row each for the phases that have steps, and for all.
Table breakdown_table(std::string title, const std::array<StepBreakdown, 3>& by_phase);

/// How well the device was filled, as shares; negative: not known.
struct DeviceUse {
  double utilisation = -1.0;  ///< time with at least one kernel running / wall time, by ops between stamps
  double traced_utilisation = -1.0;  ///< the same by the kernels of traced ranges, within their steps
  /// Estimates by the launch table: time of the ops, each with the mean of its launches.
  double sm_efficiency = -1.0;  ///< sum of min(blocks / SMs, 1) x time / wall time
  double occupancy = -1.0;  ///< time-weighted min(threads / SMs / threads an SM holds, theoretical occupancy)
  /// By hardware counters, weighted by time.
  double measured_sm_active = -1.0;
  double measured_warps_active = -1.0;
};
DeviceUse device_use(const Aggregate& sum, const std::vector<KernelLaunch>& launches,
                     const std::vector<RangeLine>& ranges, const CounterAggregate& counters);
/// Without rows if nothing is known.
Table device_use_table(const DeviceUse& use);

}  // namespace minfer
