#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "profiling/counters/counter_window.h"
#include "profiling/summary/distribution.h"
#include "profiling/summary/summary.h"
#include "profiling/text/table.h"

namespace minfer {

/// Steps of one kind that ran while a window was open, opening or closing, against steps outside windows. Each step inside is compared
/// with its neighbours in time, on the line between the ones before and the ones behind: steps grow as contexts grow.
struct WindowCost {
  int64_t inside = 0;       ///< steps with such neighbours
  int64_t outside = 0;      ///< steps of the kind
  double inside_us = 0.0;   ///< median wall time
  double outside_us = 0.0;  ///< the same without windows, by the ratio to the neighbours

  double share() const { return inside_us / outside_us - 1.0; }  ///< of the wall time, e.g. 0.01
};

/// Sums up the cost as lines come: for the kind with most steps inside; if `inside` or `outside` is 0, it is not known. The line of a window comes after its steps: a window is compared with the last kRecentSteps, and
/// a step with the last kRecentWindows. One thread at a time.
class WindowCostSum {
 public:
  static constexpr size_t kRecentSteps = 1u << 15;
  static constexpr size_t kRecentWindows = 8;
  static constexpr size_t kNeighbours = 10;  ///< steps on either side
  void add(const StepSummary& step);
  void add(const CounterWindow& window);
  WindowCost result() const;

 private:
  using Kind = std::array<int32_t, 3>;
  struct Step {
    Kind kind{};
    double begin_ns = 0.0;
    double end_ns = 0.0;
    double wall_us = 0.0;
    bool is_inside = false;
  };
  struct Span {
    double begin_ns = 0.0;
    double end_ns = 0.0;
    bool overlaps(const Step& step) const { return step.end_ns > begin_ns && step.begin_ns < end_ns; }
  };
  struct Times {
    int64_t outside = 0;
    Distribution inside_us;
    Distribution ratio;  ///< of a step inside to its neighbours
  };
  using Kinds = std::map<Kind, Times>;
  void settle(Kinds& kinds, size_t place) const;
  double neighbours_us(size_t place) const;

  std::deque<Step> recent_;
  size_t num_settled_ = 0;  ///< at the front of recent_: neighbours of later steps
  std::deque<Span> windows_;
  Kinds kinds_;  ///< of settled steps
};

/// The sum over one rank's windows of hardware counters.
struct CounterAggregate {
  int64_t windows = 0;
  double us = 0.0;  ///< of all windows
  int64_t interval_ns = 0;
  int64_t lost = 0;       ///< samples
  int64_t fitted = 0;     ///< windows whose samples had to be moved to the device's clock
  int64_t steps = 0;      ///< whole steps
  double steps_us = 0.0;  ///< of the steps, as far as there are samples
  double read_bytes = 0.0;
  double counted_read_bytes = 0.0;
  double written_bytes = 0.0;
  double counted_written_bytes = 0.0;
  double received_bytes = std::numeric_limits<double>::quiet_NaN();  ///< by NVLink; NaN: not sampled
  double sent_bytes = std::numeric_limits<double>::quiet_NaN();
  std::string error;              ///< of the last failed window; empty: none failed
  std::vector<CounterWork> work;  ///< most steps first; `replays`: steps of all windows
};
/// Adds a window; afterwards `work` is unsorted.
void add_window(CounterAggregate& sum, const CounterWindow& window);
void sort_work(CounterAggregate& sum);
/// The bytes written by whole steps; NaN: not sampled.
double known_written_bytes(const CounterAggregate& counters);
/// The mean of a share over the time of all works' ops; NaN: not sampled.
double mean_share(const CounterAggregate& counters, Counter counter);

/// The number of works with a table: those with most steps.
inline constexpr size_t kCounterTables = 2;
inline std::span<const CounterWork> first_works(const CounterAggregate& counters) {
  return std::span(counters.work).first(std::min(counters.work.size(), kCounterTables));
}
/// The report's opening sentences on counters, and its tables.
std::vector<std::string> counter_sentences(const CounterAggregate& counters, const WindowCost& cost);
/// `is_narrow`: bytes and activity are two tables that fit on a terminal.
std::vector<Table> counter_tables(const CounterAggregate& counters, bool is_narrow);

/// Sums over the windows of hardware counters of every rank but the first, by rank.
using RankCounterSums = std::map<int32_t, CounterAggregate>;

/// Sentences for a report on several ranks: why some have no counters.
std::vector<std::string> rank_counter_sentences(const CounterAggregate& first, const RankCounterSums& others,
                                                size_t num_ranks);
/// The ranks' devices side by side, one row each; no rows if only the first rank's was read.
Table rank_counters_table(const CounterAggregate& first, const RankCounterSums& others);

}  // namespace minfer
