#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "profiling/record/step_record.h"
#include "profiling/trace/range_trace.h"
#include "profiling/trace/step_trace.h"

namespace minfer {

/// An op over the traced steps: its intervals between stamps (tier 0) against its kernels' times from the driver. Kernels overlap
/// if one is placed while its predecessor still runs. So they are summed in two ways: whole durations, and each instant counted
/// once, for the kernel that began first.
struct OpDifference {
  std::string op;
  int64_t runs = 0;
  double stamped_us = 0.0;
  double kernel_us = 0.0;      ///< durations
  double own_us = 0.0;         ///< each instant once
  double difference_us = 0.0;  ///< sum over runs of |interval - durations|
  double own_difference_us = 0.0;
};

/// The difference between the tier 0 times of ops and the times of their kernels.
struct Attribution {
  int64_t steps = 0;
  double step_us = 0.0;           ///< device time of the steps, by stamps
  std::vector<OpDifference> ops;  ///< most time first

  /// Sum over all op runs of |interval - durations|, as a share of the steps' time.
  double difference() const;
  double own_difference() const;
};

/// Sums up traced steps. `ops`: by OpId; `traces`: of the same steps.
Attribution attribution_of(std::span<const OpInfo> ops, std::span<const TracedStep> steps,
                           std::span<const StepTrace> traces);

/// A traced step: a line of the profile file.
struct StepKernels {
  int64_t step = 0;
  int32_t rank = 0;
  int64_t kernels = 0;
  int64_t unmatched = 0;       ///< kernels that fit none of its launches
  int64_t missing = 0;         ///< launches that no kernel was seen of
  double busy_us = 0.0;        ///< with at least one kernel running
  double attributed_us = 0.0;  ///< with at least one kernel of a known op running
  double idle_us = 0.0;        ///< with none, from the first kernel's begin to the last one's end
  double host_wait_us = 0.0;   ///< part of idle_us before kernels that were launched too late for less

  /// True if no kernel is missing; then these are the best times of the step.
  bool is_whole() const { return kernels > 0 && missing == 0; }
};

/// A kernel, copy or fill of a step: a line of the profile file.
struct KernelLine {
  int64_t step = 0;
  int32_t rank = 0;
  ActivityKind kind = ActivityKind::kernel;
  std::string op;  ///< empty: no known op
  int32_t layer = -1;
  std::optional<StepPhase> phase = std::nullopt;  ///< of its op's tokens; none without an op
  std::string kernel;                             ///< its name; empty: no kernel
  int32_t launch = -1;  ///< index into the header's table of launches; -1: no launch of the step fits
  int32_t stream = 0;
  bool in_graph = false;
  int64_t start_ns = 0;
  double us = 0.0;
  double own_us = 0.0;  ///< without the time in which an earlier kernel still ran
  double gap_us = 0.0;  ///< before it, with nothing running
  GapCause gap_cause = GapCause::none;
  double launch_delay_us = -1.0;  ///< from the end of the call that launched it; -1: not known
  int64_t bytes = 0;              ///< of copies and fills
};

/// Gaps in which the device ran nothing.
struct GapSum {
  int64_t gaps = 0;
  double us = 0.0;
};

/// The idle time of the device before the kernels and copies of an op.
struct OpGaps {
  std::string op;  ///< without an op: the kernel's name, or "memcpy" or "memset"
  GapSum host;     ///< by cause
  GapSum device;
  GapSum unknown;

  double us() const { return host.us + device.us + unknown.us; }
  int64_t gaps() const { return host.gaps + device.gaps + unknown.gaps; }
};

/// The idle time of a range. Copies do not count as idle time.
struct RangeIdle {
  GapSum start;  ///< between steps that follow one another
  GapSum host;   ///< within steps, by cause
  GapSum device;
  GapSum unknown;
  std::vector<OpGaps> ops;  ///< within steps, by the op behind; most time first
};

/// Kernels, copies or fills of one name that match no launch or no step.
struct Stranger {
  std::string kernel;     ///< or "memcpy" or "memset"
  int64_t unmatched = 0;  ///< in a step, but none of its launches
  int64_t outside = 0;    ///< in no step of the range
};

/// A traced range: a line of the profile file.
struct RangeLine {
  int32_t rank = 0;
  int64_t first_step = 0;  ///< the first step that ended in the range
  int64_t last_step = -1;  ///< before first_step: none
  std::string error;       ///< why it was not traced; empty: it was traced
  int64_t steps = 0;
  int64_t kernels = 0;
  int64_t copies = 0;         ///< and fills
  int64_t dropped = 0;        ///< records that the driver lost, or beyond the limit of kept ones
  int64_t invalid = 0;        ///< records with impossible times
  int64_t outside = 0;        ///< activities of no step of the range
  int64_t unmatched = 0;      ///< kernels that fit none of their step's launches
  int64_t missing = 0;        ///< launches that no kernel was seen of
  int64_t of_profiler = 0;    ///< kernels of the profiler itself; no count above includes them
  double overhead_us = 0.0;   ///< time of the tracing itself, as far as it says
  bool own_clock = false;     ///< times were converted from the tracing library's clock
  double busy_us = 0.0;       ///< with at least one kernel running
  double idle_us = 0.0;       ///< with none, within steps
  double host_wait_us = 0.0;  ///< part of idle_us before kernels that were launched too late for less
  RangeIdle idle;
  std::vector<Stranger> strangers;  ///< the most frequent names in `unmatched` and `outside`
  Attribution attribution;
};

/// A range with all its results computed.
class RangeAnalysis {
 public:
  static constexpr size_t kMostStrangers = 16;

  /// `ops`: by OpId.
  RangeAnalysis(RangeTrace range, std::span<const OpInfo> ops);

  const RangeLine& line() const { return line_; }
  /// The range's steps, in order.
  const std::vector<StepTrace>& steps() const { return steps_; }
  /// Visits every step.
  void for_each_step(const std::function<void(const StepKernels&)>& visit) const;
  /// Visits every kernel, copy and fill, step by step.
  void for_each_kernel(const std::function<void(const KernelLine&)>& visit) const;

 private:
  void set_gaps_between_steps();
  void add_idle_time();
  void name_strangers(const std::vector<DeviceActivity>& outside);
  /// The op that ran it; null: not known.
  const OpInfo* op_of(const TracedStep& step, const TracedActivity& activity) const;
  KernelLine kernel_line(const TracedStep& step, const TracedActivity& activity) const;

  std::vector<OpInfo> ops_;
  std::vector<TracedStep> traced_;
  std::vector<StepTrace> steps_;  ///< of the same steps
  std::vector<std::string> names_;
  std::vector<int32_t> file_launch_of_;  ///< by launch, its index in the file; empty: the same
  RangeLine line_;
};

}  // namespace minfer
