#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "profiling/json/json_text.h"

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

/// A row of a trace: its process and thread numbers.
struct Track {
  int32_t process = 0;
  int32_t thread = 0;
};

/// Writes the events of a trace in Chrome's JSON format ("Trace Event Format", Google), as text passed to `write` in pieces of some
/// 64 KiB. Memory does not grow with the trace. Times are written as microseconds after `base_ns`, with three decimals. The caller
/// ensures that the slices of a track nest and ascend.
///
///     TraceEvents events(write, base_ns);
///     events.open_file("{\"schemaVersion\":1");  // keys of the file beside its events
///     events.name_process(1, "host");
///     events.add_slice(track, "wait", "cpu_op", span).field("step", 7);  // its args
///     events.close_file();
class TraceEvents {
 public:
  using Write = std::function<void(std::string_view)>;

  TraceEvents(Write write, int64_t base_ns) : write_(std::move(write)), json_(out_), base_ns_(base_ns) {}

  /// `head`: an open object with at least one key; its keys stand in front of the events.
  void open_file(std::string_view head);
  /// Writes the rest and closes the file.
  void close_file();

  /// Viewers show processes in the order of their numbers, and threads in the order of `place`.
  void name_process(int32_t process, std::string_view name);
  void name_thread(Track track, std::string_view name, int32_t place);

  /// A slice ("X"). Its args are what the caller writes to the result before the next event.
  JsonText& add_slice(Track track, std::string_view name, std::string_view category, TimeSpan span);
  /// An arrow from the slice on `from` that began at `from_ns` to the slice on `to` that began at `to_ns`.
  void add_flow(int64_t id, Track from, int64_t from_ns, Track to, int64_t to_ns);
  /// A point on a counter's curves. Its values are the args that the caller writes before the next event.
  JsonText& add_counter(int32_t process, std::string_view name, int64_t time_ns);

 private:
  JsonText& open_event(std::string_view kind, std::string_view name, Track track);
  JsonText& open_args();
  double us_of(int64_t time_ns) const { return static_cast<double>(time_ns - base_ns_) / 1e3; }

  Write write_;
  std::string out_;
  JsonText json_;
  const int64_t base_ns_;
  std::string_view brackets_;  ///< that the newest event still lacks; empty: there is no event
};

}  // namespace minfer
