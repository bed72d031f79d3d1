#pragma once

#include <cstdint>
#include <vector>

#include "profiling/record/ended_request.h"
#include "profiling/summary/summary.h"

namespace minfer {

/// Estimates device time by request. A step's time for prompts is divided equally among the requests whose prompts it computed, its time
/// for decoding among the requests that decoded. Steps are added in order and take 24 bytes each.
class DeviceTime {
 public:
  struct Part {
    double us = 0.0;     ///< negative: not known, its first steps are not kept
    double share = 0.0;  ///< share of the device's time from its first step to its last
  };

  void add(const StepSummary& step);
  /// The part of a request; its first steps count as its prompt's. If it paused, the mean of the steps from its first to its last counts.
  Part of(const RequestSteps& steps) const;

 private:
  struct Sums {
    double prefill_us = 0.0;  ///< for one request, over all steps up to here
    double decode_us = 0.0;
    double all_us = 0.0;
  };
  std::vector<int64_t> steps_;
  std::vector<Sums> sums_;
};

}  // namespace minfer
