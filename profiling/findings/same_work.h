#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiling/summary/summary.h"

namespace minfer {

/// A condition that sets a step apart from others in which an op does the same work.
enum class StepCondition : uint8_t {
  beside_prompts,
  prompts_alone,
  preempted,     ///< in this step or the one before
  long_context,  ///< one sequence has it: is_uneven()
  after_pause,   ///< the first step behind kPauseUs without work
  later,         ///< in the recording: its last quarter to half
  eager          ///< on a device, without a graph
};
inline constexpr double kPauseUs = 5'000.0;

/// True if one decoding sequence has a context of at least four times the mean of the others.
inline bool is_uneven(const BatchShape& shape) {
  const int64_t others = shape.decode_context - shape.longest_context;
  return shape.decode_sequences > 1 && shape.longest_context > 0 &&
         int64_t{shape.longest_context} * (shape.decode_sequences - 1) >= 4 * others;
}

/// An op that took longer under a condition than elsewhere, for the same work.
struct Slowdown {
  StepCondition condition = StepCondition::later;
  std::string op;
  int64_t calls = 0;       ///< under the condition
  double us = 0.0;         ///< of these calls
  double beyond_us = 0.0;  ///< part of `us`: the time beyond the same work elsewhere
};

/// The times of ops for the same work, by the conditions of their steps. Calls of an op are compared if their bytes and FLOPs are within
/// a factor of two of each other. If there are none, and the op waits for memory, they are compared with calls that have less to do. The
/// expected time scales by the roofline's time and, since small ops take as long for half of the work, by the call; the larger of the
/// two counts. Memory does not grow with the number of steps.
class SameWork {
 public:
  explicit SameWork(const Ceilings& ceilings = {}) : ceilings_(ceilings) {}

  /// `conditions`: a bit for each StepCondition but `later`.
  void add(const StepSummary& step, uint32_t conditions);

  /// One for each condition and op that was slower by at least a quarter (twice, if it had more to do), and by more than chance. Most time
  /// first.
  std::vector<Slowdown> slowdowns() const;
  /// The time of decoding's ops in the later part of the recording: by the earlier speed, and as measured; 0: they did other work.
  std::pair<double, double> early_and_late() const;

 private:
  struct Sum {
    int64_t steps = 0, calls = 0;
    double us = 0.0, units = 0.0;
    double rates = 0.0, squared_rates = 0.0;  ///< of steps: time over units

    void operator+=(const Sum& other);
    double expected_us(const Sum& elsewhere) const;
    double beyond_us(const Sum& elsewhere, double slower) const;
    double variance_of_mean() const;
  };
  using Sums = std::map<uint32_t, Sum>;
  /// An op whose calls have about as much to do.
  struct Cell {
    std::string op;
    bool is_memory_bound = false;
    Sums by_conditions;
    Sums by_part;  ///< of the recording; decode steps under no condition but `eager`
  };
  static constexpr size_t kMostCells = 4096;

  std::pair<Sum, Sum> before_and_later(const Cell& cell) const;
  static std::pair<uint32_t, double> reason_of(const Sum& sum, uint32_t conditions, const Sums& all,
                                               double slower);

  Ceilings ceilings_;
  std::unordered_map<uint64_t, Cell> cells_;
  uint64_t steps_ = 0;
};

}  // namespace minfer
