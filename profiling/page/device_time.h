#pragma once

#include <cstdint>
#include <vector>

#include "profiling/record/ended_request.h"
#include "profiling/report/summary.h"

namespace minfer {

/// Device time by request, estimated: a step's time for prompts in equal parts for each whose prompt it computed, its time for decoding
/// for each that decoded. Steps are added in order and take 24 bytes each.
class DeviceTime {
 public:
  struct Part {
    double us = 0.0;     ///< negative: not known, the first of its steps are not held
    double share = 0.0;  ///< of the device's time in the steps from its first to its last
  };

  void add(const StepSummary& step);
  /// Of a request that computed its prompt in its first steps; where it paused, the mean of the steps from its first to its last counts.
  Part of(const RequestSteps& steps) const;

 private:
  struct Sums {
    double prefill_us = 0.0;  ///< of one request, over all steps up to here
    double decode_us = 0.0;
    double all_us = 0.0;
  };
  std::vector<int64_t> steps_;
  std::vector<Sums> sums_;
};

}  // namespace minfer
