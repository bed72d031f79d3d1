#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/op.h"
#include "kernels/stamps.h"
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

/// Sums up traced steps.
class AttributionSum {
 public:
  /// `ops`: by OpId; outlives this.
  explicit AttributionSum(std::span<const OpInfo> ops);
  void add(const StepStamps& stamps, const StepTrace& trace);
  Attribution result() const;

 private:
  std::span<const OpInfo> ops_;
  std::vector<size_t> sum_of_;  ///< by OpId: ops of one name share a sum
  Attribution sum_;
};

}  // namespace minfer
