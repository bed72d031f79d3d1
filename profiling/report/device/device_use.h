#pragma once

#include <array>
#include <limits>
#include <string>
#include <vector>

#include "profiling/report/device/counters_report.h"
#include "profiling/summary/aggregate.h"
#include "profiling/text/table.h"

namespace minfer {

/// The parts of the steps' wall time. Each instant counts for the first of these that ran then, so the parts add up to the wall time.
/// Tier 0 knows only the length of the host's spans; there `host_us` is an upper bound, and `idle_us` a lower bound.
struct StepBreakdown {
  double kernel_us = 0.0;
  double memcpy_us = 0.0;
  double memset_us = 0.0;         ///< tier 0 does not tell it apart
  double communication_us = 0.0;  ///< the same
  double launch_us = 0.0;         ///< the device waited while the host launched
  double host_us = 0.0;           ///< the host worked, and nothing was launched
  double idle_us = 0.0;

  void add(const StepBreakdown& other);
  double all_us() const {
    return kernel_us + memcpy_us + memset_us + communication_us + launch_us + host_us + idle_us;
  }
};
/// Adds the time of the host's spans other than launching and waiting.
double add_host_work(const StepSummary& step, double us = 0.0);
/// `transfers`: ops that copy between host and device.
StepBreakdown breakdown_of(const StepSummary& step, const std::vector<std::string>& transfers);
/// One row for each phase that has steps, and one for all steps.
Table breakdown_table(std::string title, const std::array<StepBreakdown, 3>& by_phase);

/// The utilisation of the device, as shares; NaN: not known.
struct DeviceUse {
  static constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();
  double utilisation =
      kNotKnown;  ///< time with at least one kernel running / wall time, by ops between stamps
  double traced_utilisation = kNotKnown;  ///< the same by the kernels of traced ranges, within their steps
  /// Estimates by the launch table: the ops' time, each with the mean of its launches.
  double sm_efficiency = kNotKnown;  ///< sum of min(blocks / SMs, 1) x time / wall time
  double occupancy =
      kNotKnown;  ///< time-weighted min(threads / SMs / threads an SM holds, theoretical occupancy)
  /// By hardware counters, weighted by time.
  double measured_sm_active = kNotKnown;
  double measured_warps_active = kNotKnown;
};
DeviceUse device_use(const Aggregate& sum, const std::vector<KernelLaunch>& launches,
                     const std::vector<RangeLine>& ranges, const CounterAggregate& counters);
/// Without rows if nothing is known.
Table device_use_table(const DeviceUse& use);

}  // namespace minfer
