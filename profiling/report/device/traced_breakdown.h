#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "profiling/report/device/device_use.h"
#include "profiling/report/summary.h"

namespace minfer {

/// Of a step, what its kernels are laid over.
struct StepWall {
  double start_ns = 0.0;
  double end_ns = 0.0;
  double busy_until_ns = 0.0;  ///< a kernel of the step in front ran until then
  double launch_us = 0.0;      ///< the host's span
  double work_us = 0.0;        ///< its spans beside launching and waiting
};

/// The wall time of a step by what its kernels, copies and fills say: each instant counts for the first of these that ran then. What
/// nothing ran in counts as
///
///     before the step's first    up to the end of the call that launched it: launch and host, as long as those spans were; else idle
///     before a later one         launch, if it was launched when everything in front had ended (gap_cause host); else idle
///     behind the last            idle
///
/// `activities`: of the step, ordered by begin. What lies outside of the step's wall time is cut off.
StepBreakdown traced_breakdown(const StepWall& wall, std::span<const KernelLine> activities);

/// The same summed over traced steps of a profile, as its lines come: a step, later that it was traced, then its kernels. Counts steps
/// of which no kernel is missing; knows steps that were added among the last Aggregator::kRecentSteps. One thread at a time.
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
  /// Memory beside the object itself, without that of names.
  size_t bytes() const;

 private:
  struct Recent {
    int64_t step = 0;
    StepWall wall;
    StepPhase phase = StepPhase::decode;
    int64_t kernels = -1;  ///< that its lines are to have; -1: it was not traced, or not wholly
  };
  Recent* find(int64_t step);
  /// Counts the step whose kernels were added last, if it has all of them.
  void settle(Result& result) const;

  std::deque<Recent> recent_;     ///< ascending
  std::vector<KernelLine> open_;  ///< of one step
  Recent open_step_;              ///< kernels -1: `open_` are of a step that does not count
  int64_t last_step_ = -2;        ///< whose kernels came before those
  double last_end_ns_ = 0.0;      ///< when they had ended
  Result result_;
};

}  // namespace minfer
