#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/counters.h"

namespace minfer {

/// The times of a step's ops, on the clock of the samples. Op i ran from bounds_ns[i] to bounds_ns[i + 1], and
/// SampleAttribution estimates it under number first_slot + i. Steps that launch the same work, e.g. replays of a
/// graph, have the same slots.
struct StepSpans {
  int64_t step = 0;
  int32_t first_slot = 0;
  std::vector<int64_t> bounds_ns;  ///< ascending, one more than ops

  int64_t begin_ns() const { return bounds_ns.front(); }
  int64_t end_ns() const { return bounds_ns.back(); }
};

/// The average run of an op.
struct OpEstimate {
  double runs = 0.0;     ///< the estimate rests on these; parts of runs count in part
  double mean_ns = 0.0;  ///< of a run
  int64_t samples = 0;   ///< the last window's samples in which the op ran
  /// By column of the samples: the bytes of a run, or the share during it. 0 for written bytes, which leave the cache
  /// after the op that wrote them.
  std::vector<double> values;
  /// The standard error of the bytes read by a run, by the delete-a-group jackknife over steps. Infinite with fewer than two steps.
  double read_error = std::numeric_limits<double>::infinity();
};

/// Attributes the samples of counters to the ops that ran meanwhile. A sample holds the counts of one or several ops, and in every step
/// the samples cut an op at other places. So the bytes of an op are estimated from all its runs by expectation maximisation. Each sample
/// is divided among its ops by the bytes that the estimate expects of each op in that time. The next estimate of an op is its mean over
/// runs (Dempster, Laird and Rubin 1977; the same as Richardson and Lucy's deconvolution). The model assumes that an op reads evenly
/// within a run.
///
/// Windows are added one after the other. Memory grows by some 100 bytes for each run of an op. Pure arithmetic, one thread at a time.
class SampleAttribution {
 public:
  /// `counters`: the columns of the samples.
  explicit SampleAttribution(std::vector<Counter> counters);

  /// Adds a window. `steps` are in the order of time and do not overlap. Nothing runs between steps with successive
  /// numbers. In other gaps it is not known what runs, so samples that reach into these are left out.
  void add_window(const CounterSamples& samples, std::span<const StepSpans> steps);
  size_t num_steps() const { return num_steps_; }

  /// The estimates of every slot, up to the largest that was added.
  std::vector<OpEstimate> estimate() const;

 private:
  /// Standard errors come from estimates that leave out the samples of one group of steps.
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
  std::vector<double> errors_of(size_t column, const std::vector<double>& amounts) const;
  std::vector<double> solve(size_t column, size_t without_group, std::vector<double> amounts) const;
  static size_t entry(int32_t slot, size_t group) { return static_cast<size_t>(slot) * kGroups + group; }
  void grow(size_t num_slots);

  const std::vector<Counter> counters_;
  size_t num_slots_ = 1;  ///< the first is idle time, where a microsecond counts as a run
  size_t num_steps_ = 0;
  /// By slot and group: the amounts in samples in which nothing else ran, and the runs that samples cover.
  std::vector<std::vector<double>> pure_;  ///< by column
  std::vector<double> covered_;
  std::vector<double> sum_ns_;  ///< of runs, by slot
  std::vector<double> runs_;
  std::vector<int64_t> samples_;  ///< of the last window, by slot
  std::vector<Piece> pieces_;
  std::vector<Mixed> mixed_;
  std::vector<double> mixed_amounts_;  ///< [mixed_.size(), counters_.size()]
};

/// The bytes that a counter saw from `begin_ns` to `end_ns`. A sample across an end is divided by time, or counts whole if
/// `alone_before` (`alone_after`) says that nothing else ran on the other side. `covered`: the share of the time with samples.
struct CountedBytes {
  double bytes = 0.0;
  double covered = 0.0;
};
CountedBytes bytes_between(const CounterSamples& samples, size_t column, int64_t begin_ns, int64_t end_ns,
                           bool alone_before, bool alone_after);

/// The shift of the samples, within `most_ns` either way, that best aligns the changes of a column with
/// the bounds of ops (least squares over samples, against each op's mean). It is the offset between
/// two clocks, if ops read only while they run. Precise to some 1/20 of a sample if ops read at different speeds. 0 if
/// nothing changes. `most_ns` must be less than half the period of the ops, e.g. of a layer.
int64_t clock_shift_ns(const CounterSamples& samples, size_t column, std::span<const StepSpans> steps,
                       int64_t most_ns);

}  // namespace minfer
