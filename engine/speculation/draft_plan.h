#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/options/speculation_options.h"

namespace minfer {

/// The time of decoding steps, by the number of sequences and of draft tokens checked: medians of the last
/// measurements, and guesses between and beyond them. Large sizes are grouped, so that a growing batch is soon
/// known. It exists beside StepCost (engine/scheduling/step_cost.h), whose one line for all steps is too coarse
/// for a choice that a few percent decide, and which does not know how old or doubtful a measurement is.
class DraftCosts {
 public:
  DraftCosts();

  /// Adds a step that gave each of `num_sequences` a token, checked `num_drafts` draft tokens and took `ns`.
  void add(int32_t num_sequences, int32_t num_drafts, int64_t ns);
  /// The expected time of such a step, in ns; 0: not known. A cost that was measured once or twice,
  /// or long ago, counts as cheaper than it was. So the engine tries it again if it may pay.
  double estimate(int32_t num_sequences, int32_t num_drafts) const;
  /// True if steps without drafts have not been measured often enough, or not recently.
  bool lacks_baseline(int32_t num_sequences) const;
  /// The most draft tokens that a step may have without going too far beyond what is known.
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

  std::vector<Row> rows_;  ///< by num_sequences
};

/// A sequence that could bring drafts to a step.
struct DraftCandidate {
  /// The chance that draft i is accepted, with all drafts before it: falling with i.
  std::array<float, kMostDraftTokens> chances{};
  int32_t most = 0;        ///< the most drafts that it could bring
  int32_t num_drafts = 0;  ///< drafts that it is to bring
};

/// The inputs of a plan.
struct DraftSituation {
  int32_t num_sequences = 0;    ///< sequences that decode, candidates or not
  int64_t most_drafts = 0;      ///< the most drafts of all together
  double draft_pass_ns = 0.0;   ///< to make a draft token each: all sequences' first, then all second ...
  double draft_fixed_ns = 0.0;  ///< the further time of making drafts
  double least_gain = 1.0;      ///< speed with drafts divided by speed without
};

/// Divides draft tokens among sequences so that the step gives the most tokens a second. The likeliest drafts come first; their number
/// maximises the expected tokens divided by the step's expected time. No drafts if the best is not `least_gain` times the speed without.
class DraftPlanner {
 public:
  /// Sets `num_drafts` of the candidates. Returns the expected gain; 1 without drafts. Needs a baseline in `costs`.
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
