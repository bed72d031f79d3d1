#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace minfer {

/// A hardware counter over a span of time: bytes, or the share of what is possible (0 to 1).
enum class Counter : uint8_t {
  dram_read_bytes,
  dram_written_bytes,  ///< counted when they leave the L2 cache: later than the kernel that wrote them
  sm_active,           ///< cycles of all multiprocessors with a warp on them
  tensor_active,       ///< cycles of all tensor pipes in which they work
  warps_active,        ///< resident warps, of those that all multiprocessors can hold
  l2_throughput,       ///< sectors served, of those that the L2 cache can serve
  l2_hit,              ///< sectors found in the L2 cache, of those looked up; NaN: none was looked up
  nvlink_received_bytes,
  nvlink_sent_bytes,
};
inline constexpr std::array kAllCounters{
    Counter::dram_read_bytes, Counter::dram_written_bytes,    Counter::sm_active,
    Counter::tensor_active,   Counter::warps_active,          Counter::l2_throughput,
    Counter::l2_hit,          Counter::nvlink_received_bytes, Counter::nvlink_sent_bytes,
};
std::string_view name(Counter counter);
/// True for counters of bytes; the others are shares.
bool counts_bytes(Counter counter);

struct CounterOptions {
  int64_t interval_ns = 1'000;  ///< between two samples
  /// The longest window: what comes after it is lost. It decides how much memory is held.
  int64_t window_ns = 20'000'000;
  int32_t evaluation_threads = 1;  ///< threads that drain() uses, the caller's included
};

/// The settings that the device accepted.
struct CounterSetup {
  int64_t interval_ns = 0;
  std::vector<Counter> counters;  ///< a column of CounterSamples each
  /// Counters that this device or driver does not have, and why.
  std::vector<std::pair<Counter, std::string>> left_out;
};

/// The clock of the driver's samples before they were converted to the device's clock.
enum class SampleClock : uint8_t {
  device,  ///< the device's own, which also stamps ops
  fitted,  ///< the library's; converted by a line through the window's two ends, to within some microseconds
};
std::string_view name(SampleClock clock);

/// The counters' values in a window, in the order of time. Samples follow each other without gaps, except
/// where some were lost. Times are of the device's clock, in nanoseconds (StepStamps::clock_offset_ns maps
/// stamps to it).
struct CounterSamples {
  std::vector<Counter> counters;  ///< the columns
  std::vector<int64_t> begin_ns;
  std::vector<int64_t> end_ns;
  std::vector<double> values;  ///< [num_samples, counters.size()]
  int64_t lost = 0;            ///< samples that are missing
  SampleClock clock = SampleClock::device;
  int64_t asked_ns = 0;   ///< now_ns() when the window was asked for
  double start_ms = 0.0;  ///< host time of begin_window()
  double stop_ms = 0.0;   ///< host time of end_window()
  double drain_ms = 0.0;  ///< processor time of drain(), all its threads

  size_t size() const { return begin_ns.size(); }
  double value(size_t sample, size_t column) const { return values[sample * counters.size() + column]; }
  /// The counter's column; -1: not sampled.
  int column(Counter counter) const;
};

/// Counters of the kernels of one op that ran by themselves. NaN: not known.
struct OpCounters {
  double us = 0.0;  ///< under the profiler, which fixes the clocks and does not empty the caches
  double read_bytes = 0.0;
  double written_bytes = 0.0;
  double l2_hit = 0.0;          ///< share of sectors
  double occupancy = 0.0;       ///< resident warps of a multiprocessor that has any, of those it can hold
  double issue_active = 0.0;    ///< cycles in which a scheduler issues an instruction
  double tensor_active = 0.0;   ///< cycles in which the tensor pipe works
  double bank_conflicts = 0.0;  ///< wavefronts of shared memory beyond those needed
  /// Reasons that warps wait, by their hardware names, each with the number of waiting warps of a
  /// scheduler for each instruction that it issues: most first, only those of at least 0.01.
  std::vector<std::pair<std::string, double>> stalls;
};

/// Counts what single ops do (CUPTI's range profiler). Slow: each op runs again for every set of counters
/// that can be read together. For measuring ops, not for serving. Called from the backend's thread.
class RangeCounters {
 public:
  virtual ~RangeCounters() = default;
  /// Calls `pass` as often as all counters take. `pass` runs the same kernels every time, waits for them, and
  /// calls begin_range() and end_range() around those to be counted. Returns an error text; empty: no error.
  virtual std::string measure(const std::function<void()>& pass, OpCounters& out) = 0;
  /// Both throw DeviceError.
  virtual void begin_range() = 0;
  virtual void end_range() = 0;
};

/// Reads hardware counters at fixed times of the device's clock while anything runs on it, replayed graphs
/// included (profiler tier 2): windows of begin_window(), end_window(), drain(), one after the other. Made by
/// the backend and never used on the engine thread, which it does not hold up; one thread at a time. Counters
/// cover the whole device, other processes included.
///
/// Functions return an error text that says which call failed and what can be done; empty: no error.
class CounterSampler {
 public:
  virtual ~CounterSampler() = default;
  /// Call it once, before the first window. Takes 70 to 330 ms and stalls the device's work for about 2 ms.
  virtual std::string prepare(const CounterOptions& options) = 0;
  /// The result of the last successful prepare().
  virtual const CounterSetup& setup() const = 0;
  virtual std::string begin_window() = 0;
  virtual std::string end_window() = 0;
  /// Decodes the ended window into `out`, whose memory it reuses. 5 to 80 us of processor time for each sample.
  virtual std::string drain(CounterSamples& out) = 0;
  /// Gives the counters back, also for other tools: takes 60 ms and stalls the device. prepare() may follow.
  virtual void close() noexcept = 0;
};

}  // namespace minfer
