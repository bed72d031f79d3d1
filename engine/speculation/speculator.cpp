#include "engine/speculation/speculator.h"

#include <algorithm>

#include "engine/live_request.h"
#include "engine/speculation/ngram_source.h"

namespace minfer {
namespace {

/// Drafts begin where they promise this much, and go on while they promise a little: of many plans the best is less good than it looks.
constexpr double kLeastGainToBegin = 1.05, kLeastGainToGoOn = 1.02;
/// Steps that share what it takes to begin with drafts.
constexpr double kStepsOfCatchUp = 32.0;
/// Plans without drafts after which sequences no longer wait for their tokens.
constexpr int32_t kPatience = 32;

}  // namespace

Speculator::Speculator(const EngineOptions& options, std::unique_ptr<DraftSource> source)
    : options_(options.speculation),
      max_num_batched_tokens_(options.max_num_batched_tokens),
      launches_ahead_(options.steps_ahead.value_or(0) > 0),
      source_(std::move(source)) {}

void Speculator::propose(Scheduler& scheduler) {
  const std::span<Sequence* const> running = scheduler.running();
  candidates_.clear();
  orders_.clear();
  int32_t num_sequences = 0;
  bool prefills = false;
  for (Sequence* sequence : running) {
    if (sequence->num_unknown == 0) sequence->drafts.clear();
    prefills |= !sequence->is_decoding();
    // What waits for its token is not in the next step.
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
    return;  // the tokens of prompts take what time drafts could save
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
  if (!orders_.empty()) source_->propose(orders_);
}

void Speculator::consider(LiveRequest& request) {
  if (!request.drafter) request.drafter = source_->make_drafter(request);
  request.drafter->follow(request.tokens);
  const int32_t num_left = request.max_tokens - request.num_output_tokens() - request.num_unknown;
  DraftCandidate candidate{.most = std::min(options_.num_tokens, num_left - 1)};
  if (candidate.most <= 0 || request.num_output_tokens() == 0) return;
  float chance = 1.0f;
  for (int32_t i = 0; i < candidate.most; ++i) {
    chance *= request.drafter->hit_rate(i);
    candidate.chances[static_cast<size_t>(i)] = chance;
  }
  candidates_.push_back(candidate);
  orders_.push_back({.request = &request});
}

void Speculator::plan(int32_t num_sequences) {
  double catch_up_ns = 0.0;
  for (const DraftOrder& order : orders_)
    catch_up_ns += source_->catch_up_ns(*order.request->drafter);
  const DraftSituation situation{.num_sequences = num_sequences,
                                 .most_drafts = max_num_batched_tokens_ - num_sequences,
                                 .draft_pass_ns = source_->pass_ns(),
                                 .draft_fixed_ns = catch_up_ns / kStepsOfCatchUp,
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

void Speculator::checked(LiveRequest& request, int32_t num_drafts, int32_t num_accepted) {
  request.drafter->checked(num_drafts, num_accepted);
}

void Speculator::finished(const ScheduledBatch& step, int64_t begin_ns, int64_t end_ns) {
  const bool overlapped = begin_ns < last_end_ns_;
  const int64_t took_ns = end_ns - std::max(begin_ns, last_end_ns_);
  last_end_ns_ = end_ns;
  int32_t num_drafts = 0;
  for (const ScheduledSequence& entry : step.sequences) {
    if (entry.num_tokens != 1 + entry.num_drafts || entry.num_scored > 0) return;
    num_drafts += entry.num_drafts;
  }
  if (step.num_decode_sequences < std::ssize(step.sequences)) return;
  // Without drafts steps would be launched ahead: one that was not says nothing of them.
  if (num_drafts == 0 && launches_ahead_ && !overlapped) return;
  costs_.add(step.num_decode_sequences, num_drafts, took_ns);
}

std::unique_ptr<Speculator> make_speculator(const EngineOptions& options,
                                            std::unique_ptr<DraftModel> draft_model) {
  std::unique_ptr<DraftSource> source;
  switch (options.speculation.method) {
    case SpeculationMethod::off:
      return nullptr;
    case SpeculationMethod::ngram:
      source = std::make_unique<NgramSource>(options.speculation);
      break;
    case SpeculationMethod::draft:
      draft_model->begin(options);
      source = std::move(draft_model);
      break;
  }
  return std::make_unique<Speculator>(options, std::move(source));
}

}  // namespace minfer
