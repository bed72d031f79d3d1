#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace minfer {

/// A span of time on one clock, in nanoseconds; end_ns >= begin_ns.
struct TimeSpan {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;

  int64_t duration_ns() const { return end_ns - begin_ns; }
};

/// The limit (126 years) for times in a profile: its writer may state any. Times are clamped to it, so that sums of two cannot overflow.
inline constexpr int64_t kLatestNs = 4'000'000'000'000'000'000;

inline int64_t bounded_ns(int64_t ns) {
  return std::clamp(ns, -kLatestNs, kLatestNs);
}
/// A duration in nanoseconds.
inline int64_t ns_of(double us) {
  return std::llround(std::clamp(us, 0.0, static_cast<double>(kLatestNs) / 1e3) * 1e3);
}
/// Cuts the time before `busy_until_ns` off a span, and moves that time to the span's end. For spans in the order of their begins: each
/// instant then belongs to the first of them.
inline TimeSpan take_own(TimeSpan span, int64_t& busy_until_ns) {
  span.begin_ns = std::max(span.begin_ns, busy_until_ns);
  span.end_ns = busy_until_ns = std::max(span.begin_ns, span.end_ns);
  return span;
}
inline int64_t later_ns(int64_t time_ns, int64_t duration_ns) {
  return std::min(time_ns + duration_ns, kLatestNs);
}
/// The span that begins at `begin_ns` and lasts `us`.
inline TimeSpan span_of(int64_t begin_ns, double us) {
  return {bounded_ns(begin_ns), later_ns(bounded_ns(begin_ns), ns_of(us))};
}

}  // namespace minfer
