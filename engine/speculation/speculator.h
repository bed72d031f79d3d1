#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/options/engine_options.h"
#include "engine/request/live_request.h"
#include "engine/scheduling/scheduler.h"
#include "engine/scheduling/step_cost.h"
#include "engine/speculation/draft_plan.h"
#include "engine/speculation/draft_source.h"

namespace minfer {

/// The time that may be spent on drafts before their worth is known: a share of the time of all steps
/// so far. So a draft model that proves too slow, or mostly wrong, has cost no more than that share.
class TrialBudget {
 public:
  static constexpr double kShare = 1.0 / 16.0;

  void step_took(double ns) { earned_ns_ += kShare * ns; }
  void spent(double ns) { spent_ns_ += ns; }
  /// The time left, in ns.
  double left_ns() const { return std::max(0.0, earned_ns_ - spent_ns_); }

 private:
  double earned_ns_ = 0.0;
  double spent_ns_ = 0.0;
};

/// Decides before each step which sequences bring drafts to it, and how many: those with which the step is expected to
/// give more tokens a second than without, by the hit rates of the drafts and the measured step times. Engine thread.
///
/// Where steps are launched ahead, a sequence that brings drafts must wait for its newest token.
/// So all sequences are decided together: either they wait and bring drafts, or they do neither.
class Speculator {
 public:
  /// `options` with all sizes chosen. `step_cost` outlives it.
  Speculator(const EngineOptions& options, std::unique_ptr<DraftSource> source, const StepCost& step_cost);

  /// Gives running sequences drafts, or takes them away. Before each schedule().
  void propose(Scheduler& scheduler);
  /// True if the next step has to wait until no step is under way, so that sequences that wait for their tokens can bring drafts.
  bool waits_for_idle(std::span<Sequence* const> running) const;
  /// Takes a finished step, whose scheduling began at `begin_ns`.
  void finished(const ScheduledBatch& step, int64_t begin_ns, int64_t end_ns);

 private:
  void consider(LiveRequest& request);
  void plan(int32_t num_sequences);
  void leave_out_dear_trials(int32_t num_sequences);
  double most_catch_up_ns(int32_t num_tokens) const;
  void set_drafting(bool drafting, std::span<Sequence* const> running);

  const SpeculationOptions options_;
  const int32_t max_num_batched_tokens_;
  const bool launches_ahead_;
  const bool is_recurrent_;
  std::unique_ptr<DraftSource> source_;
  const StepCost& step_cost_;
  TrialBudget trials_;
  DraftCosts costs_;
  DraftPlanner planner_;
  bool drafting_ = false;          ///< the last plans had drafts
  int32_t num_plans_without_ = 0;  ///< one after the other
  int64_t last_end_ns_ = 0;

  // The step being prepared: one order for each candidate.
  std::vector<DraftCandidate> candidates_;
  std::vector<DraftOrder> orders_;
};

/// The fate of a sequence's drawn tokens, beside the tokens that stand.
struct StandingTokens {
  bool ends = false;      ///< the last one ends the generation
  bool is_stuck = false;  ///< no token can follow the last one
};

/// Sets `tokens` to the tokens of `drawn` that stand: at least the first, which must be drawn. `drawn[i]` follows if the drafts
/// before it are right, so it stands while each of these equals the token drawn in its place. Nothing stands behind a token
/// that ends the generation. `acceptance`: instead, a draft is right with this chance
/// (SpeculationOptions::synthetic_acceptance), the same each time for a position of the sequence, and replaces the drawn token.
StandingTokens standing_tokens(const LiveRequest& request, std::span<const SampledToken> drawn,
                               std::optional<double> acceptance, std::vector<TokenId>& tokens);

}  // namespace minfer
