#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "kernels/op.h"

namespace minfer {

/// Monotonic nanoseconds; the clock of every host time in records.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Nanoseconds in microseconds.
inline double us_of(int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

/// What one step's ops did on the device, in the order they ran. The interval of an op runs from its begin to the next one's (the
/// last to `end_ns`), so the intervals add up to the step's device time exactly; what the device idled between two ops is part of
/// the first one's. Owned by the engine and filled by the backend on the engine thread; reused over steps without allocating.
struct StepStamps {
  struct Stamp {
    OpId op = -1;
    int64_t begin_ns = 0;
    /// When the host had launched its first kernel; 0: a graph launched it, or there are no launches.
    int64_t launched_ns = 0;
    int64_t end_ns = 0;        ///< of its last kernel; 0: not stamped (see StepArgs::look_closely)
    int32_t num_launches = 0;  ///< kernels that it launched
  };
  std::vector<Stamp> ops;
  std::vector<int32_t>
      launches;  ///< of all ops one behind the other: indices into Backend::launches(), or -1
  int64_t end_ns = 0;
  /// What was added to the device's own clock to give the times above: the two move against each other.
  int64_t clock_offset_ns = 0;

  void clear() {
    ops.clear();
    launches.clear();
    end_ns = 0;
    clock_offset_ns = 0;
  }
};

}  // namespace minfer
