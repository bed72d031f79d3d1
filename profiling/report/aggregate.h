#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "profiling/report/summary.h"

namespace minfer {

/// Of a sample; all 0 if it is empty.
struct Statistics {
  double mean = 0.0;
  double median = 0.0;  ///< of an even count: the mean of the middle two
  double min = 0.0;
  double max = 0.0;
  double sd = 0.0;  ///< sample standard deviation (n - 1); 0 for one value
};
Statistics statistics_of(std::vector<double> sample);

/// An op over all steps, layers and phases.
struct OpAggregate {
  std::string op;
  int64_t calls = 0;
  double us = 0.0;
  int64_t bytes = 0;
  int64_t flops = 0;
  double floor_us = 0.0;                ///< roofline time of all calls; 0: ceilings unknown
  Bound bound = Bound::unknown;         ///< under which it spent most of its time
  Statistics call_us;                   ///< of the mean time of a call in each step
  double idle_us = 0.0;                 ///< that the device idled behind it
  std::map<int32_t, int64_t> launches;  ///< steps by the kind of launch that it made in them

  double mean_us() const { return calls > 0 ? us / static_cast<double>(calls) : 0.0; }
  double gbps() const { return us > 0.0 ? static_cast<double>(bytes) / us * 1e-3 : 0.0; }
  double tflops() const { return us > 0.0 ? static_cast<double>(flops) / us * 1e-6 : 0.0; }
  double roofline() const { return us > 0.0 ? floor_us / us : 0.0; }
  /// Time that an implementation at the roofline would not take.
  double above_floor_us() const { return us > floor_us ? us - floor_us : 0.0; }
};

/// Steps of one phase, or all.
struct StepGroup {
  int64_t steps = 0;
  double wall_us = 0.0;
  double gpu_us = 0.0;
  double idle_host_us = 0.0;    ///< see StepSummary
  double idle_device_us = 0.0;  ///< see StepSummary
  int64_t late_ops = 0;
  std::array<double, kHostSpans> host_us{};
  int64_t prefill_tokens = 0;
  int64_t decode_tokens = 0;
  Statistics step_us;  ///< wall time of a step

  int64_t tokens() const { return prefill_tokens + decode_tokens; }
  double tokens_per_s() const { return wall_us > 0.0 ? static_cast<double>(tokens()) / wall_us * 1e6 : 0.0; }
  /// Wall time that neither ops nor host spans cover.
  double other_us() const;
  /// Wall time of the device that no op and no idle time within a step covers.
  double between_steps_us() const;
};

/// Device time charged to a phase.
struct PhaseAggregate {
  double us = 0.0;
  int64_t tokens = 0;
};

struct Aggregate {
  StepGroup all;
  std::array<StepGroup, 3> by_phase;  ///< by StepPhase
  PhaseAggregate prefill;
  PhaseAggregate decode;
  std::vector<OpAggregate> ops;                               ///< most time first
  double attributed = 0.0;                                    ///< share of the wall time
  double least_attributed = 0.0;                              ///< of a single step
  std::map<std::string, int64_t, std::less<>> attributed_by;  ///< steps by where the figure comes from
  uint64_t dropped = 0;
};

/// Sums up the steps of `phase`, or all. Drops are those of the whole span.
Aggregate aggregate(std::span<const StepSummary> steps, std::optional<StepPhase> phase = std::nullopt);

}  // namespace minfer
