#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/counters.h"
#include "profiling/record/step_record.h"

namespace minfer {

/// A value for each Counter; NaN: not sampled, or not derivable.
class CounterValues {
 public:
  CounterValues() { values_.fill(std::numeric_limits<double>::quiet_NaN()); }
  double& operator[](Counter counter) { return values_[static_cast<size_t>(counter)]; }
  const double& operator[](Counter counter) const { return values_[static_cast<size_t>(counter)]; }
  bool has(Counter counter) const { return (*this)[counter] == (*this)[counter]; }

 private:
  std::array<double, kAllCounters.size()> values_;
};

/// An op in steps of the same work, summed over layers, as the mean of a step.
struct CounterOp {
  std::string op;
  StepPhase phase = StepPhase::decode;  ///< of the tokens it worked on
  int32_t calls = 0;
  /// The samples of this window in which it ran. If 0, values rest on earlier windows. -1: a file of an earlier version, without this.
  int64_t samples = 0;
  double us = 0.0;
  /// The bytes of all calls, and the shares during them. Never dram_written_bytes, since these leave the cache later.
  CounterValues measured;
  double read_error_bytes = std::numeric_limits<double>::quiet_NaN();  ///< standard error; NaN: not known
  double counted_read_bytes = 0.0;                                     ///< see op_work()

  /// 10^9 bytes/s read from the device's memory.
  double read_gbps() const {
    return us > 0.0 ? measured[Counter::dram_read_bytes] / us * 1e-3
                    : std::numeric_limits<double>::quiet_NaN();
  }
};

/// Steps that launch the same kernels: replays of one graph, or steps with equal numbers of tokens.
struct CounterWork {
  StepPhase phase = StepPhase::decode;
  int32_t graph_batch = 0;  ///< sequences of the graph; 0: no graph
  int64_t steps = 0;        ///< in this window, whole or in part
  int64_t replays = 0;      ///< the estimates rest on these, in earlier windows too
  std::vector<CounterOp> ops;
};

/// A step that lies wholly in the window.
struct CounterStep {
  int64_t step = 0;
  double us = 0.0;         ///< with an op running
  double covered = 0.0;    ///< the share of that time with samples
  CounterValues measured;  ///< only bytes
  int64_t counted_read_bytes = 0;
  int64_t counted_written_bytes = 0;
};

/// The hardware counters of one rank's device over some milliseconds (profiler tier 2); a line of a profile file.
struct CounterWindow {
  int32_t rank = 0;   ///< the rank that has the device and runs the ops
  std::string error;  ///< why there is no data; empty: there is data

  int64_t begin_ns = 0;  ///< of now_ns()
  double us = 0.0;
  int64_t interval_ns = 0;
  SampleClock clock = SampleClock::device;
  /// The delay from the stamps of ops to the changes of bandwidth. Samples are moved by it only on a fitted clock.
  int64_t clock_shift_ns = 0;
  int64_t samples = 0;
  int64_t lost = 0;
  std::vector<Counter> counters;
  std::vector<std::pair<Counter, std::string>> left_out;  ///< with the reason; only in the first window

  double start_ms = 0.0;  ///< see CounterSamples
  double stop_ms = 0.0;
  double drain_ms = 0.0;
  double attribution_ms = 0.0;

  std::vector<CounterStep> steps;
  std::vector<CounterWork> work;
};

}  // namespace minfer
