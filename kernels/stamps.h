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

/// Begin times of one step's ops in the order they ran. The interval of an op is the next one's begin minus
/// its own (the last ends at `end_ns`), so the ops of a step add up to its device time exactly. Owned by the
/// engine and filled by the backend on the engine thread; reused over steps without allocating.
struct StepStamps {
  struct Stamp {
    OpId op;
    int64_t begin_ns;
  };
  std::vector<Stamp> ops;
  int64_t end_ns = 0;

  void clear() {
    ops.clear();
    end_ns = 0;
  }
};

}  // namespace minfer
