#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "profiling/report/summary.h"

namespace minfer {

/// What sets a step apart from others in which an op does the same work.
enum class StepCondition : uint8_t {
  beside_prompts,
  prompts_alone,
  preempted,     ///< in this step, or the one before
  long_context,  ///< of one sequence, is_uneven()
  after_pause,   ///< the first step behind kPauseUs without work
  eager,         ///< on a device, without a graph
  later          ///< in the recording: its last quarter to half
};
inline constexpr uint32_t kStepConditions = 7;
inline constexpr double kPauseUs = 5'000.0;

/// Whether one of the decoding sequences has a context of at least four times the others' mean.
inline bool is_uneven(const BatchShape& shape) {
  const int64_t others = shape.decode_context - shape.longest_context;
  return shape.decode_sequences > 1 && shape.longest_context > 0 &&
         int64_t{shape.longest_context} * (shape.decode_sequences - 1) >= 4 * others;
}

/// That an op took longer under a condition than elsewhere, for the same work.
struct Slowdown {
  StepCondition condition = StepCondition::later;
  std::string op;
  int64_t calls = 0;       ///< under the condition
  double us = 0.0;         ///< of these
  double beyond_us = 0.0;  ///< of that: what the same work does not take elsewhere
};

/// What ops take for the same work, by the conditions of their steps. Calls of an op are compared where what they move and compute is
/// within a factor of two of each other, and if there are none and memory is what they wait for, where they have less to do: by the time
/// that the roofline allows and, since small ops take as long for half of the work, by the call. The larger is what they should have
/// taken. Memory does not grow with the number of steps.
class SameWork {
 public:
  explicit SameWork(const Ceilings& ceilings) : ceilings_(ceilings) {}

  /// `conditions`: a bit for each StepCondition but `later`.
  void add(const StepSummary& step, uint32_t conditions);

  /// Of each condition and op that was slower by a quarter and more (twice, if it had more to do), and by more than chance: the most time
  /// first.
  std::vector<Slowdown> slowdowns() const;
  /// Time of decoding's ops in the later part of the recording, as the earlier speed has it and as it was; 0: they did other work.
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
    Sums by_part;  ///< of the recording, of decode steps under no condition but `eager`
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
