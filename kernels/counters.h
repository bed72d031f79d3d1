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

/// What a hardware counter tells of a span of time: bytes, or the share of what is possible (0 to 1).
enum class Counter : uint8_t {
  dram_read_bytes,
  dram_written_bytes,  ///< when they leave the L2 cache: later than the kernel that wrote them
  sm_active,           ///< of the cycles of all multiprocessors, those with a warp on it
  tensor_active,       ///< of the cycles of all tensor pipes, those in which it works
  warps_active,        ///< of the warps that all multiprocessors hold, those that are there
  l2_throughput,       ///< of the sectors that the L2 cache can serve
  l2_hit,  ///< of the sectors that were looked up in it, those that were there; NaN: none was looked up
  nvlink_received_bytes,
  nvlink_sent_bytes,
};
inline constexpr std::array kAllCounters{
    Counter::dram_read_bytes, Counter::dram_written_bytes,    Counter::sm_active,
    Counter::tensor_active,   Counter::warps_active,          Counter::l2_throughput,
    Counter::l2_hit,          Counter::nvlink_received_bytes, Counter::nvlink_sent_bytes,
};
std::string_view name(Counter counter);
/// Whether it counts; the others are shares.
bool counts_bytes(Counter counter);

struct CounterOptions {
  int64_t interval_ns = 1'000;  ///< of a sample
  /// Of a window at the most: what comes after is lost. Decides how much memory is held.
  int64_t window_ns = 20'000'000;
  int32_t evaluation_threads = 1;  ///< that drain() uses, the caller's included
};

/// What was agreed on with the device.
struct CounterSetup {
  int64_t interval_ns = 0;
  std::vector<Counter> counters;  ///< a column of CounterSamples each
  /// Those that this device or driver does not have, and why.
  std::vector<std::pair<Counter, std::string>> left_out;
};

/// Which clock the driver's samples carried before they were put on the device's.
enum class SampleClock : uint8_t {
  device,  ///< the device's own, in which ops are stamped
  fitted,  ///< the library's; mapped by a line through the window's two ends, to some microseconds
};
std::string_view name(SampleClock clock);

/// What the counters said in a window, in the order of time. Samples follow each other without gaps, except
/// where some were lost. Times are of the device's clock, in nanoseconds (StepStamps::clock_offset_ns maps
/// stamps to it).
struct CounterSamples {
  std::vector<Counter> counters;  ///< the columns
  std::vector<int64_t> begin_ns;
  std::vector<int64_t> end_ns;
  std::vector<double> values;  ///< [num_samples, counters.size()]
  int64_t lost = 0;            ///< samples that should have been there
  SampleClock clock = SampleClock::device;
  int64_t asked_ns = 0;   ///< now_ns() when the window was asked for
  double start_ms = 0.0;  ///< host time of begin_window(),
  double stop_ms = 0.0;   ///< of end_window(),
  double drain_ms = 0.0;  ///< and of drain(), processor time of all its threads

  size_t size() const { return begin_ns.size(); }
  double value(size_t sample, size_t column) const { return values[sample * counters.size() + column]; }
  /// Its column; -1: not sampled.
  int column(Counter counter) const;
};

/// What counters say of the kernels of one op that ran by themselves. NaN: not known.
struct OpCounters {
  double us = 0.0;  ///< under the profiler, which sets the clocks' speed and empties nothing
  double read_bytes = 0.0;
  double written_bytes = 0.0;
  double l2_hit = 0.0;          ///< share of sectors
  double occupancy = 0.0;       ///< warps on a multiprocessor that has any, of those it holds
  double issue_active = 0.0;    ///< cycles in which a scheduler issues an instruction
  double tensor_active = 0.0;   ///< cycles in which the tensor pipe works
  double bank_conflicts = 0.0;  ///< wavefronts of shared memory beyond those needed
  /// What warps wait for, by the hardware's name of it, with how many warps of a scheduler do for each
  /// instruction that it issues: most first, those of at least 0.01.
  std::vector<std::pair<std::string, double>> stalls;
};

/// Counts what single ops do (CUPTI's range profiler): slowly, each op again for every set of counters that
/// goes together. For measuring ops, not for serving. Called from the backend's thread.
class RangeCounters {
 public:
  virtual ~RangeCounters() = default;
  /// Has `pass` called as often as all counters take. It runs the same kernels every time, waits for them, and
  /// calls begin_range() and end_range() around those that count. An error text; empty: none.
  virtual std::string measure(const std::function<void()>& pass, OpCounters& out) = 0;
  /// Throw DeviceError.
  virtual void begin_range() = 0;
  virtual void end_range() = 0;
};

/// Reads hardware counters at fixed times of the device's clock while anything runs on it, replayed graphs
/// included (profiler tier 2): windows of begin_window(), end_window(), drain(), one after the other. Made by
/// the backend and never used on the engine thread, which it does not hold up; one thread at a time. Counters
/// are of the whole device, other processes included.
///
/// Errors are texts that say which call failed and what can be done; empty: none.
class CounterSampler {
 public:
  virtual ~CounterSampler() = default;
  /// Once, before the first window. Takes 70 to 330 ms and stalls what runs on the device for about 2 ms.
  virtual std::string prepare(const CounterOptions& options) = 0;
  /// Of the last successful prepare().
  virtual const CounterSetup& setup() const = 0;
  virtual std::string begin_window() = 0;
  virtual std::string end_window() = 0;
  /// Decodes the ended window into `out`, whose memory is used again. 5 to 80 us of processor time a sample.
  virtual std::string drain(CounterSamples& out) = 0;
  /// Gives the counters back, to other tools too: 60 ms and a stall. prepare() may follow.
  virtual void close() noexcept = 0;
};

}  // namespace minfer
