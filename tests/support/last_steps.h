#pragma once

#include <algorithm>
#include <vector>

#include "profiling/record/recorder.h"

namespace minfer::test {

/// At most the last `count` records of the ring, oldest first.
inline std::vector<StepRecord> last_steps(const StepRecorder& recorder, size_t count) {
  std::vector<StepRecord> steps = recorder.after(-1);
  steps.erase(steps.begin(), steps.end() - static_cast<std::ptrdiff_t>(std::min(count, steps.size())));
  return steps;
}

}  // namespace minfer::test
