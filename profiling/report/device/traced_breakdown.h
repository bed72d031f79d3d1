#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "profiling/report/device/device_use.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// The wall time of a step and its host spans, which its kernels divide.
struct StepWall {
  double start_ns = 0.0;
  double end_ns = 0.0;
  double busy_until_ns = 0.0;  ///< until then, a kernel of the step in front ran
  double launch_us = 0.0;      ///< the host's span
  double work_us = 0.0;        ///< the host's spans other than launching and waiting
};

/// Divides a step's wall time by its kernels, copies and fills: each instant counts for the first of these that ran then. The time in
/// which nothing ran counts as
///
///     before the step's first    up to the end of the call that launched it: launch and host, as long as those spans; else idle
///     before a later one         launch, if the launch came after everything in front had ended (gap_cause host); else idle
///     behind the last            idle
///
/// `activities`: of the step, ordered by begin. Their parts outside the step's wall time are cut off.
StepBreakdown traced_breakdown(const StepWall& wall, std::span<const KernelLine> activities);

/// Sums that over the traced steps of a profile, as its lines come: a step, later the line that it was traced, then its kernels. Counts
/// steps without missing kernels, and knows the last Aggregator::kRecentSteps added steps. One thread at a time.
class TracedBreakdownSum {
 public:
  struct Result {
    int64_t steps = 0;
    std::array<StepBreakdown, 3> by_phase{};  ///< by StepPhase
  };

  void add(const StepSummary& step);
  void add(const StepKernels& kernels);
  void add(const KernelLine& kernel);
  Result result() const;
  /// The memory outside the object itself, without the names.
  size_t bytes() const;

 private:
  struct Recent {
    int64_t step = 0;
    StepWall wall;
    StepPhase phase = StepPhase::decode;
    int64_t kernels = -1;  ///< expected number of kernel lines; -1: not traced, or not wholly
  };
  Recent* find(int64_t step);
  /// Counts the step whose kernels were added last, if no kernel is missing.
  void settle(Result& result) const;

  std::deque<Recent> recent_;     ///< ascending
  std::vector<KernelLine> open_;  ///< of one step
  Recent open_step_;              ///< kernels -1: `open_` are of a step that does not count
  int64_t last_step_ = -2;        ///< the step whose kernels came before those
  double last_end_ns_ = 0.0;      ///< when the kernels of that step ended
  Result result_;
};

}  // namespace minfer
