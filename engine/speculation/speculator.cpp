#include "engine/speculation/speculator.h"

#include <algorithm>

#include "engine/request/live_request.h"
#include "kernels/base/random.h"

namespace minfer {
namespace {

/// Drafts begin if they promise this much, and go on while they promise a little: the best of many plans is less good than it looks.
constexpr double kLeastGainToBegin = 1.05, kLeastGainToGoOn = 1.02;
/// The most steps that share the cost of beginning with drafts: fewer if the request has fewer tokens left.
constexpr double kStepsOfCatchUp = 32.0;
/// A cost that cannot be afforded.
constexpr double kNeverNs = 1e18;
/// Plans without drafts after which sequences no longer wait for their tokens.
constexpr int32_t kPatience = 32;

/// Tokens that the request may still be given.
int32_t num_left(const LiveRequest& request) {
  return request.max_tokens - request.num_output_tokens() - request.num_unknown;
}

}  // namespace

Speculator::Speculator(const EngineOptions& options, std::unique_ptr<DraftSource> source,
                       const StepCost& step_cost)
    : options_(options.speculation),
      max_num_batched_tokens_(options.max_num_batched_tokens),
      launches_ahead_(options.steps_ahead.value_or(0) > 0),
      is_recurrent_(options.is_recurrent),
      source_(std::move(source)),
      step_cost_(step_cost) {}

void Speculator::propose(Scheduler& scheduler) {
  const std::span<Sequence* const> running = scheduler.running();
  candidates_.clear();
  orders_.clear();
  int32_t num_sequences = 0;
  bool prefills = false;
  for (Sequence* sequence : running) {
    if (sequence->num_unknown == 0) sequence->drafts.clear();
    prefills |= !sequence->is_decoding();
    // A sequence that waits for its token is not in the next step.
    if (sequence->num_unknown > 0 && sequence->waits_for_token) continue;
    ++num_sequences;
    if (sequence->owner->may_speculate && sequence->is_decoding()) consider(*sequence->owner);
  }
  if (candidates_.empty()) return;
  if (!options_.adaptive) {
    if (launches_ahead_) set_drafting(true, running);
    for (size_t i = 0; i < orders_.size(); ++i)
      orders_[i].num_drafts = candidates_[i].most;
  } else if (prefills) {
    return;  // prompt tokens take the time that drafts could save
  } else if (costs_.lacks_baseline(num_sequences)) {
    return set_drafting(false, running);
  } else {
    plan(num_sequences);
    const bool has_drafts =
        std::ranges::any_of(orders_, [](const DraftOrder& order) { return order.num_drafts > 0; });
    num_plans_without_ = has_drafts ? 0 : num_plans_without_ + 1;
    if (has_drafts || num_plans_without_ > kPatience) set_drafting(has_drafts, running);
  }
  for (DraftOrder& order : orders_) {
    const bool is_ready = order.num_drafts > 0 && order.request->num_unknown == 0;
    order.num_drafts = is_ready ? scheduler.reserve_drafts(*order.request, order.num_drafts) : 0;
  }
  std::erase_if(orders_, [](const DraftOrder& order) { return order.num_drafts == 0; });
  if (orders_.empty()) return;
  const bool is_trial = !source_->is_known();
  const int64_t begin_ns = now_ns();
  source_->propose(orders_);
  if (is_trial) trials_.spent(static_cast<double>(now_ns() - begin_ns));
}

void Speculator::consider(LiveRequest& request) {
  if (!request.drafter) request.drafter = source_->make_drafter(request);
  request.drafter->follow(request.tokens);
  DraftCandidate candidate{.most = std::min(options_.num_tokens, num_left(request) - 1)};
  if (candidate.most <= 0 || request.num_output_tokens() == 0) return;
  if (is_recurrent_ && request.num_pending() > kMostRepeatedTokens) return;
  float chance = 1.0f;
  for (int32_t i = 0; i < candidate.most; ++i) {
    chance *= request.drafter->hit_rate(i);
    candidate.chances[static_cast<size_t>(i)] = chance;
  }
  candidates_.push_back(candidate);
  orders_.push_back({.request = &request});
}

/// The most time that the model itself would take for `num_tokens` tokens of a prompt; if that is not known, all the time there is.
double Speculator::most_catch_up_ns(int32_t num_tokens) const {
  if (num_tokens == 0) return 0.0;
  BatchShape shape;
  shape.add_sequence(false, num_tokens, num_tokens, 1);
  const int64_t ns = step_cost_.predict_ns(shape);
  return ns > 0 ? static_cast<double>(ns) : kNeverNs;
}

/// While the drafts' worth is not known: leaves sequences without drafts if these might
/// cost more than may be spent. A draft model counts as being as slow as the model.
void Speculator::leave_out_dear_trials(int32_t num_sequences) {
  const double slow_pass_ns = costs_.estimate(num_sequences, 0);
  const double pass_ns = source_->pass_ns() > 0.0 ? source_->pass_ns() : slow_pass_ns;
  double left_ns = trials_.left_ns();
  int32_t num_passes = 0;  // that all share
  for (size_t i = 0; i < orders_.size(); ++i) {
    const int32_t more_passes = std::max(0, candidates_[i].most - num_passes);
    const double cost_ns =
        most_catch_up_ns(source_->num_behind(*orders_[i].request->drafter)) + more_passes * pass_ns;
    if (cost_ns > left_ns) {
      candidates_[i].most = 0;
      continue;
    }
    left_ns -= cost_ns;
    num_passes += more_passes;
  }
}

void Speculator::plan(int32_t num_sequences) {
  if (!source_->is_known()) leave_out_dear_trials(num_sequences);
  double fixed_ns = 0.0;
  for (size_t i = 0; i < orders_.size(); ++i) {
    if (candidates_[i].most == 0) continue;
    const double steps = std::min<double>(kStepsOfCatchUp, num_left(*orders_[i].request));
    fixed_ns += source_->num_behind(*orders_[i].request->drafter) * source_->token_ns() / steps;
  }
  const DraftSituation situation{.num_sequences = num_sequences,
                                 .most_drafts = max_num_batched_tokens_ - num_sequences,
                                 .draft_pass_ns = source_->pass_ns(),
                                 .draft_fixed_ns = fixed_ns,
                                 .least_gain = drafting_ ? kLeastGainToGoOn : kLeastGainToBegin};
  planner_.plan(candidates_, situation, costs_);
  for (size_t i = 0; i < orders_.size(); ++i)
    orders_[i].num_drafts = candidates_[i].num_drafts;
}

void Speculator::set_drafting(bool drafting, std::span<Sequence* const> running) {
  drafting_ = drafting;
  if (!launches_ahead_) return;
  for (Sequence* sequence : running) {
    if (sequence->owner->may_speculate) sequence->waits_for_token = drafting;
  }
}

bool Speculator::waits_for_idle(std::span<Sequence* const> running) const {
  return source_->needs_idle() && std::ranges::any_of(running, [](const Sequence* sequence) {
           return sequence->waits_for_token && sequence->owner->may_speculate;
         });
}

void Speculator::finished(const ScheduledBatch& step, int64_t begin_ns, int64_t end_ns) {
  const bool overlapped = begin_ns < last_end_ns_;
  const int64_t took_ns = end_ns - std::max(begin_ns, last_end_ns_);
  last_end_ns_ = end_ns;
  trials_.step_took(static_cast<double>(took_ns));
  int32_t num_drafts = 0;
  for (const ScheduledSequence& entry : step.sequences) {
    if ((entry.num_drafts == 0 && entry.num_tokens > 1) || entry.num_scored > 0) return;
    num_drafts += entry.num_drafts;
  }
  if (step.num_decode_sequences < std::ssize(step.sequences)) return;
  // Without drafts, steps would be launched ahead. A step that was not launched ahead says nothing of their time.
  if (num_drafts == 0 && launches_ahead_ && !overlapped) return;
  costs_.add(step.num_decode_sequences, num_drafts, took_ns);
}

StandingTokens standing_tokens(const LiveRequest& request, std::span<const SampledToken> drawn,
                               std::optional<double> acceptance, std::vector<TokenId>& tokens) {
  constexpr uint64_t kSeed = 1;
  tokens.clear();
  for (size_t i = 0; i < drawn.size(); ++i) {
    if (!drawn[i].is_drawn()) return {.is_stuck = true};
    TokenId token = drawn[i].token;
    bool goes_on = i + 1 < drawn.size();
    if (goes_on && acceptance) {
      goes_on = uniform(kSeed, request.size() + static_cast<int64_t>(i)) < *acceptance;
      if (goes_on) token = request.drafts[i];
    } else if (goes_on) {
      goes_on = request.drafts[i] == token;
    }
    tokens.push_back(token);
    if (request.ends_with(token)) return {.ends = true};
    if (!goes_on) break;
  }
  return {};
}

}  // namespace minfer
