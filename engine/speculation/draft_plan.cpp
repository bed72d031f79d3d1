#include "engine/speculation/draft_plan.h"

#include <algorithm>
#include <tuple>

namespace minfer {
namespace {

constexpr float kLeastChance = 0.02f;  ///< less likely drafts are not worth a thought

/// Tokens a step that a sequence is expected to be given with `num_drafts` drafts.
double expected_tokens(const DraftCandidate& candidate, int32_t num_drafts, bool repeats_rejected) {
  double tokens = 1.0;
  for (int32_t i = 0; i < num_drafts; ++i)
    tokens += candidate.chances[static_cast<size_t>(i)];
  if (!repeats_rejected || num_drafts == 0) return tokens;
  // With some chance there is another step, which gives a token.
  const double repeats = 1.0 - candidate.chances[static_cast<size_t>(num_drafts) - 1];
  return (tokens + repeats) / (1.0 + repeats);
}

}  // namespace

double DraftPlanner::plan(std::span<DraftCandidate> candidates, const DraftSituation& situation,
                          const DraftCosts& costs) {
  drafts_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    candidates[i].num_drafts = 0;
    for (int32_t j = 0; j < candidates[i].most; ++j) {
      const float chance = candidates[i].chances[static_cast<size_t>(j)];
      if (chance < kLeastChance) break;
      drafts_.push_back({chance, static_cast<int32_t>(i), j});
    }
  }
  std::ranges::sort(drafts_, [](const Draft& a, const Draft& b) {
    return std::tuple(-a.chance, a.candidate, a.index) < std::tuple(-b.chance, b.candidate, b.index);
  });

  const double baseline_ns = costs.estimate(situation.num_sequences, 0);
  const int64_t most = std::min<int64_t>(situation.most_drafts, costs.most_drafts(situation.num_sequences));
  double tokens = situation.num_sequences, best_gain = situation.least_gain;
  int32_t num_passes = 0;
  size_t best = 0;
  for (size_t i = 0; i < drafts_.size() && static_cast<int64_t>(i) < most; ++i) {
    const DraftCandidate& candidate = candidates[static_cast<size_t>(drafts_[i].candidate)];
    tokens += expected_tokens(candidate, drafts_[i].index + 1, situation.repeats_rejected) -
              expected_tokens(candidate, drafts_[i].index, situation.repeats_rejected);
    num_passes = std::max(num_passes, drafts_[i].index + 1);
    const double step_ns = costs.estimate(situation.num_sequences, static_cast<int32_t>(i) + 1) +
                           situation.draft_fixed_ns + num_passes * situation.draft_pass_ns;
    const double gain = tokens / step_ns * baseline_ns / situation.num_sequences;
    if (gain <= best_gain) continue;
    best_gain = gain;
    best = i + 1;
  }
  for (size_t i = 0; i < best; ++i)
    ++candidates[static_cast<size_t>(drafts_[i].candidate)].num_drafts;
  return best == 0 ? 1.0 : best_gain;
}

}  // namespace minfer
