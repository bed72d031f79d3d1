#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/options/speculation_options.h"

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

/// A sequence that could bring drafts to a step.
struct DraftCandidate {
  /// The chance that draft i is accepted, with all before it: falling.
  std::array<float, kMostDraftTokens> chances{};
  int32_t most = 0;        ///< drafts that it could bring
  int32_t num_drafts = 0;  ///< that it is to bring
};

/// What a plan is made with.
struct DraftSituation {
  int32_t num_sequences = 0;    ///< that decode, candidates or not
  int64_t most_drafts = 0;      ///< of all together
  double draft_pass_ns = 0.0;   ///< to make a draft token each: all sequences' first, then all second ...
  double draft_fixed_ns = 0.0;  ///< what making drafts takes beside
  double least_gain = 1.0;      ///< as the speed with drafts divided by that without
  /// Behind a rejected draft a sequence has a step without drafts, which computes again what stands (layers with states).
  bool repeats_rejected = false;
};

/// Divides draft tokens among sequences so that the step gives the most tokens a second: the likeliest first, as many as the expected
/// tokens divided by the step's expected time is largest for; none if that is not `least_gain` times what it is without them.
class DraftPlanner {
 public:
  /// Sets `num_drafts` of the candidates. The gain expected of it; 1 without drafts. Needs a baseline in `costs`.
  double plan(std::span<DraftCandidate> candidates, const DraftSituation& situation, const DraftCosts& costs);

 private:
  struct Draft {
    float chance;
    int32_t candidate;
    int32_t index;
  };
  std::vector<Draft> drafts_;  ///< reused
};

}  // namespace minfer
