#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/counters.h"

namespace minfer {

/// When the ops of a step ran, on the clock of the samples. Op i ran from bounds_ns[i] to bounds_ns[i + 1] and
/// is what SampleAttribution estimates under number first_slot + i: steps that launch the same work, replays of a
/// graph say, have the same slots.
struct StepSpans {
  int64_t step = 0;
  int32_t first_slot = 0;
  std::vector<int64_t> bounds_ns;  ///< ascending, one more than ops

  int64_t begin_ns() const { return bounds_ns.front(); }
  int64_t end_ns() const { return bounds_ns.back(); }
};

/// What a run of an op does on average.
struct OpEstimate {
  double runs = 0.0;     ///< that the estimate rests on; parts of runs count as such
  double mean_ns = 0.0;  ///< of a run
  int64_t samples = 0;   ///< of the last window in which the op ran
  /// By column of the samples. Bytes of a run, or the share during it. 0 for written bytes, which leave the cache
  /// after the op that wrote them.
  std::vector<double> values;
  /// Standard errors of them, by the delete-a-group jackknife over steps. Infinite with fewer than two steps.
  std::vector<double> errors;
};

/// Gives the samples of counters to the ops that ran meanwhile. A sample holds the counts of one or several ops, and each op is cut by
/// samples at other places in every step; so the bytes of an op are estimated from all its runs by expectation maximisation: each sample is
/// divided among the ops in it by the bytes that the estimate expects of each op in that time, and the next estimate of an op is what it
/// was given, a run (Dempster, Laird and Rubin 1977; the same as Richardson and Lucy's deconvolution). Within a run, an op is taken to read
/// evenly.
///
/// Windows are added one after the other; memory grows by some 100 bytes a run of an op. Pure arithmetic, one thread at a time.
class SampleAttribution {
 public:
  /// For samples with these columns.
  explicit SampleAttribution(std::vector<Counter> counters);

  /// Adds a window. `steps` in the order of time, not overlapping. Between steps of successive numbers nothing
  /// runs; what runs beside them otherwise is not known, and samples that reach there are left out.
  void add_window(const CounterSamples& samples, std::span<const StepSpans> steps);
  size_t num_steps() const { return num_steps_; }

  /// Of every slot up to the largest that was added.
  std::vector<OpEstimate> estimate() const;

 private:
  /// Samples are left out of the estimate by groups of steps for the errors.
  static constexpr size_t kGroups = 5;

  struct Segment {
    int64_t begin_ns;
    int64_t end_ns;
    int32_t slot;  ///< kIdle: between steps
    uint32_t group;
  };
  struct Piece {
    int32_t slot;
    double share;  ///< of a run of it
  };
  /// A sample in which several ops ran.
  struct Mixed {
    uint32_t first_piece;
    uint32_t end_piece;
    uint32_t group;
  };

  std::vector<Segment> lay_out(std::span<const StepSpans> steps);
  void add_sample(const CounterSamples& samples, size_t sample, std::span<const Segment> segments,
                  int64_t begin_ns, int64_t end_ns);
  double amount(const CounterSamples& samples, size_t sample, size_t column) const;
  std::vector<double> solve(size_t column, size_t without_group, std::vector<double> amounts) const;
  static size_t entry(int32_t slot, size_t group) { return static_cast<size_t>(slot) * kGroups + group; }
  void grow(size_t num_slots);

  const std::vector<Counter> counters_;
  size_t num_slots_ = 1;  ///< the first is idle time, a microsecond of which is a run
  size_t num_steps_ = 0;
  /// By slot and group: what samples hold in which nothing else ran, and runs that samples cover.
  std::vector<std::vector<double>> pure_;  ///< by column
  std::vector<double> covered_;
  std::vector<double> sum_ns_;  ///< of runs, by slot
  std::vector<double> runs_;
  std::vector<int64_t> samples_;  ///< of the last window, by slot
  std::vector<Piece> pieces_;
  std::vector<Mixed> mixed_;
  std::vector<double> mixed_amounts_;  ///< [mixed_.size(), counters_.size()]
};

/// Bytes that a byte counter saw from `begin_ns` to `end_ns`. A sample across an end is divided by time, or counted whole where
/// `alone_before` (`alone_after`) says that nothing else ran on the other side. `covered`: the share of the time that samples cover.
struct CountedBytes {
  double bytes = 0.0;
  double covered = 0.0;
};
CountedBytes bytes_between(const CounterSamples& samples, size_t column, int64_t begin_ns, int64_t end_ns,
                           bool alone_before, bool alone_after);

}  // namespace minfer
