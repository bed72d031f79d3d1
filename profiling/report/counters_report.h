#pragma once

#include <span>
#include <string>
#include <vector>

#include "profiling/counters/counter_window.h"
#include "profiling/report/summary.h"
#include "profiling/report/table.h"

namespace minfer {

/// Steps of one kind that ran while a window was open, being opened or being closed, against those that did not.
struct WindowCost {
  int64_t inside = 0;
  int64_t outside = 0;
  double inside_us = 0.0;  ///< median wall time
  double outside_us = 0.0;
};
/// Of the kind of which most ran inside; none inside or none outside: nothing is known.
WindowCost window_cost(std::span<const CounterWindow> windows, std::span<const StepSummary> steps);

/// What windows of hardware counters say together.
struct CounterAggregate {
  int64_t windows = 0;
  double us = 0.0;  ///< of all windows
  int64_t interval_ns = 0;
  int64_t lost = 0;    ///< samples
  int64_t fitted = 0;  ///< windows whose samples had to be put on the device's clock
  int64_t steps = 0;   ///< whole ones
  double read_bytes = 0.0;
  double counted_read_bytes = 0.0;
  double written_bytes = 0.0;
  double counted_written_bytes = 0.0;
  std::string error;              ///< of the last window that could not be had; empty: none
  std::vector<CounterWork> work;  ///< most steps first; `replays`: steps of all windows
};
CounterAggregate aggregate_counters(std::span<const CounterWindow> windows);

/// Of a report: sentences for its beginning, and a table for each of the two works with most steps.
std::vector<std::string> counter_sentences(const CounterAggregate& counters, const WindowCost& cost);
std::vector<Table> counter_tables(const CounterAggregate& counters);

}  // namespace minfer
