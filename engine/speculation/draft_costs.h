#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace minfer {

/// What decoding steps take, by the sequences in them and the draft tokens checked beside: medians of the last ones measured, and
/// between and beyond these a guess. Sizes are put together where they are large, so that a batch that grows is soon known. Beside
/// StepCost (engine/scheduling/step_cost.h), whose one line for all steps is too coarse for a choice that a few percent decide, and which knows
/// nothing of how old or how doubtful a measurement is.
class DraftCosts {
 public:
  DraftCosts();

  /// A step that gave each of `num_sequences` a token, and checked `num_drafts` draft tokens, took `ns`.
  void add(int32_t num_sequences, int32_t num_drafts, int64_t ns);
  /// What such a step would take, in ns; 0: not known. What was measured once or twice, or long ago, counts as cheaper than it was,
  /// so that it is tried again if there is something in it.
  double estimate(int32_t num_sequences, int32_t num_drafts) const;
  /// Whether steps without drafts have not been measured often enough, or not of late.
  bool lacks_baseline(int32_t num_sequences) const;
  /// Draft tokens that a step may have without leaving what is known too far behind.
  int32_t most_drafts(int32_t num_sequences) const;

 private:
  static constexpr size_t kSamples = 5;
  struct Cell {
    std::array<float, kSamples> samples_ns{};
    float median_ns = 0.0f;
    int32_t num_samples = 0;
    int32_t num_drafts = 0;  ///< of the last sample
    int64_t time = 0;        ///< of the row's clock, at the last sample
  };
  struct Row {
    std::vector<Cell> cells;  ///< by num_drafts; empty: nothing was measured
    int64_t clock = 0;        ///< steps
  };

  double trusted_ns(const Row& row, const Cell& cell) const;
  const Row& row_of(int32_t num_sequences) const;

  std::vector<Row> rows_;  ///< by num_sequences
};

}  // namespace minfer
