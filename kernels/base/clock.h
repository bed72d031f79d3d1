#pragma once

#include <chrono>
#include <cstdint>

namespace minfer {

/// Monotonic nanoseconds; the clock of every host time in records.
inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// Converts nanoseconds to microseconds.
inline double us_of(int64_t ns) {
  return static_cast<double>(ns) * 1e-3;
}

}  // namespace minfer
