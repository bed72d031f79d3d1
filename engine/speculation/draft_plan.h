#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/speculation/draft_costs.h"
#include "engine/speculation/speculation_options.h"

namespace minfer {

/// A sequence that could bring drafts to a step.
struct DraftCandidate {
  /// The chance that draft i is accepted, with all before it: falling.
  std::array<float, kMostDraftTokens> chances{};
  int32_t most = 0;        ///< drafts that it could bring
  int32_t num_drafts = 0;  ///< that it is to bring
};

/// What a plan is made with.
struct DraftSituation {
  int32_t num_sequences = 0;  ///< that decode, candidates or not
  int64_t most_drafts = 0;    ///< of all together
  double draft_pass_ns =
      0.0;  ///< what a draft token each takes to make: all sequences' first, then all second ones ...
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
