#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace minfer {

/// A time on one clock, in nanoseconds; end_ns >= begin_ns.
struct TimeSpan {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;

  int64_t duration_ns() const { return end_ns - begin_ns; }
};

/// Times in a profile are whatever its writer says. Those beyond this (126 years) stand there, so that sums of two cannot overflow.
inline constexpr int64_t kLatestNs = 4'000'000'000'000'000'000;

inline int64_t bounded_ns(int64_t ns) {
  return std::clamp(ns, -kLatestNs, kLatestNs);
}
/// A duration.
inline int64_t ns_of(double us) {
  return std::llround(std::clamp(us, 0.0, static_cast<double>(kLatestNs) / 1e3) * 1e3);
}
inline int64_t later_ns(int64_t time_ns, int64_t duration_ns) {
  return std::min(time_ns + duration_ns, kLatestNs);
}
/// What begins then and takes so long.
inline TimeSpan span_of(int64_t begin_ns, double us) {
  return {bounded_ns(begin_ns), later_ns(bounded_ns(begin_ns), ns_of(us))};
}

}  // namespace minfer
