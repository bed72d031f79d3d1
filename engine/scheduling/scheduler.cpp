#include "engine/scheduling/scheduler.h"

#include <array>
#include <stdexcept>
#include <utility>

#include "engine/options/sizes.h"
#include "kernels/base/error.h"

namespace minfer {

std::string_view name(SchedulingPolicy policy) {
  static constexpr std::array<std::string_view, 3> kNames{"fcfs", "priority", "shortest"};
  return kNames[static_cast<size_t>(policy)];
}

BlockManagerOptions block_manager_options(const EngineOptions& options, uint64_t hash_key) {
  const KvBlockSizes sizes = kv_block_sizes(options);
  return {.num_blocks = options.num_blocks,
          .block_size = sizes.block_size,
          .enable_prefix_caching = options.enable_prefix_caching,
          .hash_key = hash_key,
          .window = options.kv_layout.value_or(KvLayout{}).window,
          .window_block_size = sizes.window_block_size,
          .max_tokens_under_way = most_tokens_under_way(options)};
}

Scheduler::Scheduler(const EngineOptions& options, BlockManager& blocks, const PrefillBudget* prefill_limit)
    : options_(options),
      num_slots_(std::min(options.max_num_seqs, options.max_num_batched_tokens)),
      kv_capacity_(blocks.most_tokens()),
      blocks_(blocks),
      state_slots_(options.num_state_slots),
      state_copies_(options.num_state_slots, options.num_state_copies.value_or(0)),
      prefill_limit_(prefill_limit),
      served_before_{options.policy},
      waiting_(served_before_) {
  if (!options.enable_chunked_prefill && options.max_num_batched_tokens < options.max_model_len) {
    fail("max_num_batched_tokens: {} with chunked prefill off, expected at least max_model_len = {}",
         options.max_num_batched_tokens, options.max_model_len);
  }
  const auto num_slots = static_cast<size_t>(num_slots_);
  running_.reserve(num_slots);
  batch_.sequences.reserve(num_slots);
  prefills_.reserve(num_slots);
}

std::optional<std::string> Scheduler::enqueue(Sequence& sequence) {
  if (sequence.status != SequenceStatus::created)
    throw std::logic_error("enqueue: the sequence is known already");
  sequence.arrival = next_arrival_++;
  if (std::optional<std::string> refused = refusal(sequence)) {
    finish(sequence, FinishReason::refused);
    return refused;
  }
  if (!sequence.draws && !sequence.is_scoring()) {
    finish(sequence, FinishReason::length);
    return std::nullopt;
  }
  // The last output token is never computed, so it needs no place in the cache.
  const int64_t most =
      std::min<int64_t>(options_.max_model_len, kv_capacity_ + 1) - sequence.num_prompt_tokens;
  sequence.max_tokens = static_cast<int32_t>(std::min<int64_t>(sequence.max_tokens, most));
  const auto num_tokens = static_cast<uint64_t>(sequence.num_prompt_tokens);
  sequence.service_order = num_arrived_tokens_ + 2 * num_tokens;
  num_arrived_tokens_ += num_tokens;
  sequence.status = SequenceStatus::waiting;
  waiting_.insert(&sequence);
  return std::nullopt;
}

std::optional<std::string> Scheduler::refusal(const Sequence& sequence) const {
  const int32_t num_tokens = sequence.num_prompt_tokens;
  if (num_tokens == 0) return "the prompt has no tokens";
  if (num_tokens + (sequence.draws ? 1 : 0) > options_.max_model_len) {
    return fmt::format("the prompt has {} tokens, but a prompt{} must fit into max_model_len = {}",
                       num_tokens, sequence.draws ? " and at least one output token" : "",
                       options_.max_model_len);
  }
  if (sequence.num_to_compute() > kv_capacity_) {
    return fmt::format("the prompt has {} tokens, but the whole KV cache holds {} ({} blocks of {})",
                       num_tokens, kv_capacity_, blocks_.num_blocks(), blocks_.block_size());
  }
  return std::nullopt;
}

const ScheduledBatch& Scheduler::schedule() {
  begin_step();
  size_t num_visited = 0;
  bool admitting = true;
  while (true) {
    if (admitting && first_waiting_is_next(num_visited)) {
      admitting = admit_first_waiting(num_visited);
      if (admitting) ++num_visited;
    } else if (num_visited < running_.size()) {
      if (schedule_running(num_visited)) ++num_visited;
    } else {
      break;
    }
  }
  batch_.num_decode_sequences = static_cast<int32_t>(batch_.sequences.size());
  batch_.sequences.insert(batch_.sequences.end(), prefills_.begin(), prefills_.end());
  return batch_;
}

/// The tokens that the next step can compute. None if the step would need more unknown tokens
/// than are allowed, or if the last token that the sequence will ever draw is under way.
int32_t Scheduler::num_schedulable(const Sequence& sequence) const {
  if (sequence.is_held || sequence.read_end > 0) return 0;
  if (sequence.num_unknown == 0) return sequence.num_pending();
  if (sequence.waits_for_token || !sequence.drafts.empty()) return 0;
  const bool draws_last = sequence.num_output_tokens() + sequence.num_unknown >= sequence.max_tokens;
  return draws_last || sequence.num_unknown > options_.steps_ahead.value_or(0) ? 0 : sequence.num_pending();
}

void Scheduler::begin_step() {
  batch_.sequences.clear();
  batch_.state_restores.clear();
  batch_.state_saves.clear();
  batch_.num_decode_sequences = 0;
  batch_.num_tokens = 0;
  batch_.num_preempted = 0;
  batch_.prefix_hit_tokens = 0;
  batch_.prefill_budget = 0;
  prefills_.clear();
  int64_t decode_tokens = 0, draft_tokens = 0;
  for (const Sequence* sequence : running_) {
    if (!sequence->is_decoding()) continue;
    decode_tokens += num_schedulable(*sequence);
    if (sequence->num_unknown == 0) draft_tokens += std::ssize(sequence->drafts);
  }
  decode_budget_ = static_cast<int32_t>(std::min<int64_t>(decode_tokens, options_.max_num_batched_tokens));
  prefill_budget_ = options_.max_num_batched_tokens - decode_budget_;
  draft_budget_ = static_cast<int32_t>(std::min<int64_t>(draft_tokens, prefill_budget_));
  prefill_budget_ -= draft_budget_;
  if (prefill_limit_ != nullptr) limit_prefill();
}

/// A decoding sequence counts even if its newest token is not known yet and it brings none to this step: it still waits for the step.
void Scheduler::limit_prefill() {
  BatchShape decoding;
  const Sequence* first_prompt = nullptr;
  for (const Sequence* sequence : running_) {
    if (!sequence->is_decoding()) {
      if (first_prompt == nullptr) first_prompt = sequence;
      continue;
    }
    const int32_t num_tokens = num_schedulable(*sequence);
    decoding.decode_sequences += 1;
    decoding.decode_tokens += num_tokens;
    decoding.decode_logit_rows += num_tokens > 0;
    decoding.decode_context += num_tokens > 0 ? sequence->num_scheduled + num_tokens : 0;
  }
  decoding.decode_tokens += draft_budget_;
  decoding.decode_logit_rows += draft_budget_;
  const int32_t first_token = first_prompt == nullptr ? 0 : first_prompt->num_scheduled;
  prefill_budget_ = prefill_limit_->tokens(decoding, first_token, prefill_budget_, num_waiting());
  if (decoding.decode_sequences > 0) batch_.prefill_budget = prefill_budget_;
}

bool Scheduler::first_waiting_is_next(size_t num_visited) const {
  if (waiting_.empty()) return false;
  return num_visited == running_.size() || served_before_(*waiting_.begin(), running_[num_visited]);
}

/// Gives the first waiting sequence a slot, its cached prefix and its first tokens. Returns false if it has to wait.
bool Scheduler::admit_first_waiting(size_t num_visited) {
  const bool slots_taken_for_good = num_running() == num_slots_ && num_visited == running_.size();
  if (prefill_budget_ == 0 || slots_taken_for_good) return false;
  Sequence& sequence = **waiting_.begin();
  match_prefix(sequence);
  const int32_t num_cached = static_cast<int32_t>(match_.blocks.size()) * blocks_.block_size();
  if (!options_.enable_chunked_prefill && sequence.size() - num_cached > prefill_budget_) return false;
  if (!make_room(sequence, num_visited)) return false;

  waiting_.erase(waiting_.begin());
  running_.insert(running_.begin() + static_cast<ptrdiff_t>(num_visited), &sequence);
  sequence.status = SequenceStatus::running;
  state_slots_.take(sequence);
  sequence.num_prefill_tokens = sequence.size();
  reserve_full_size(sequence);
  blocks_.adopt_prefix(sequence, match_);
  if (options_.is_recurrent) restore_state(sequence);
  const int32_t num_hit_tokens = sequence.num_computed;
  if (sequence.num_preemptions == 0) {
    sequence.num_cached_tokens = num_hit_tokens;
  } else {
    sequence.num_recomputed_tokens -= std::min(num_hit_tokens, sequence.num_recomputed_tokens);
  }
  batch_.prefix_hit_tokens += num_hit_tokens;
  if (on_admission_ && !sequence.is_scoring()) on_admission_(sequence);
  schedule_running(num_visited);
  return true;
}

/// Finds the cached prefix of a sequence; none if it is scored, since its tokens must be computed for their logits.
void Scheduler::match_prefix(Sequence& sequence) {
  if (sequence.is_scoring()) {
    match_.clear();
  } else {
    blocks_.match_prefix(sequence, match_);
    if (options_.is_recurrent) end_match_at_copy();
  }
}

/// Reserves memory now, so that no later step allocates.
void Scheduler::reserve_full_size(Sequence& sequence) const {
  const int32_t max_size = sequence.num_prompt_tokens + sequence.max_tokens;
  sequence.tokens.reserve(static_cast<size_t>(max_size));
  blocks_.reserve(sequence, max_size);
}

/// Preempts unvisited sequences, which all come after `sequence`, until it has a slot and blocks; keeps match_ up to date. Returns
/// false if it finds too little, if possible before a vain preemption. A shorter prompt is no reason to recompute another one.
bool Scheduler::make_room(Sequence& sequence, size_t num_visited) {
  const auto has_room = [&] {
    return num_running() < num_slots_ && num_needed_blocks(sequence, running_.size()) <= blocks_.num_free();
  };
  if (options_.policy == SchedulingPolicy::shortest) return has_room();
  int64_t num_obtainable = blocks_.num_free();
  for (size_t i = num_visited; i < running_.size(); ++i) {
    num_obtainable += running_[i]->num_held_blocks();
  }
  if (num_needed_blocks(sequence, num_visited) > num_obtainable) return false;
  while (!has_room()) {
    if (running_.size() == num_visited) return false;
    preempt_last();
    match_prefix(sequence);
  }
  return true;
}

/// Free blocks that admission of a sequence needs: for all its tokens that are not
/// in live blocks, and for one more token of each sequence that runs beside it.
int64_t Scheduler::num_needed_blocks(const Sequence& sequence, size_t num_others) const {
  return int64_t{blocks_.blocks_for(sequence.num_to_compute())} - match_.num_live +
         static_cast<int64_t>(num_others) * blocks_.blocks_to_grow();
}

/// Gives running_[index] tokens and the blocks for them. Returns false if it had to be preempted itself.
bool Scheduler::schedule_running(size_t index) {
  Sequence& sequence = *running_[index];
  const int32_t budget = sequence.is_decoding() ? decode_budget_ : prefill_budget_;
  int32_t num_tokens = std::min(num_schedulable(sequence), budget);
  if (num_tokens == 0) return true;
  const bool is_copied = cut_at_copy(sequence, num_tokens);
  while (!blocks_.allocate(sequence, sequence.num_scheduled + num_tokens)) {
    preempt_last();
    if (index == running_.size()) return false;
  }
  add_to_batch(sequence, num_tokens, is_copied);
  return true;
}

int32_t Scheduler::reserve_drafts(Sequence& sequence, int32_t num_drafts) {
  const int32_t size = sequence.size();
  const int32_t num_new = blocks_.num_lacking(sequence, size + num_drafts);
  if (num_new > 0 && blocks_.num_free() - num_new >= num_running() * blocks_.blocks_to_grow())
    blocks_.allocate(sequence, size + num_drafts);
  return std::clamp(blocks_.num_covered_tokens(sequence) - size, 0, num_drafts);
}

/// The number of drafts that a sequence brings behind its `num_tokens` next tokens: none if these are not all of its other tokens.
int32_t Scheduler::take_drafts(Sequence& sequence, int32_t num_tokens, bool is_copied) {
  if (sequence.drafts.empty()) return 0;
  const int32_t most = std::min(static_cast<int32_t>(sequence.drafts.size()), draft_budget_);
  const bool may_bring = num_tokens == sequence.num_pending() && may_undo(sequence, num_tokens, is_copied);
  const int32_t num_drafts = may_bring ? reserve_drafts(sequence, most) : 0;
  sequence.drafts.resize(static_cast<size_t>(num_drafts));
  draft_budget_ -= num_drafts;
  return num_drafts;
}

void Scheduler::add_to_batch(Sequence& sequence, int32_t num_tokens, bool is_copied) {
  const bool is_decode = sequence.is_decoding();
  const int32_t num_drafts = is_decode ? take_drafts(sequence, num_tokens, is_copied) : 0;
  const int32_t before = state_before(sequence, num_drafts > 0);
  const int32_t first_token = sequence.num_scheduled;
  sequence.num_scheduled += num_tokens;
  const int32_t num_drawn = sequence.draws && sequence.num_pending() == 0 ? 1 + num_drafts : 0;
  const int32_t last = sequence.size() - 1;  // nothing known stands behind it
  const int32_t num_scored = std::max(
      0, std::min(sequence.num_scheduled, last) - std::max(first_token, last - sequence.num_unscored));
  sequence.num_scheduled += num_drafts;
  sequence.num_unknown += num_drawn;
  (is_decode ? batch_.sequences : prefills_)
      .push_back({.sequence = &sequence,
                  .first_token = first_token,
                  .num_tokens = num_tokens + num_drafts,
                  .num_logit_rows = num_scored + num_drawn,
                  .num_preemptions = sequence.num_preemptions,
                  .num_scored = num_scored,
                  .num_drafts = num_drafts,
                  .state_copy = is_copied ? begin_copy(sequence) : -1,
                  .state_before = before});
  (is_decode ? decode_budget_ : prefill_budget_) -= num_tokens;
  batch_.num_tokens += num_tokens + num_drafts;
}

/// The last running sequence is unvisited or the one being visited, so nothing of this step is lost with it.
void Scheduler::preempt_last() {
  Sequence& sequence = *running_.back();
  running_.pop_back();
  give_up_slot(sequence);
  ++batch_.num_preempted;
}

/// Returns it to the queue; a held sequence gets there when it is released.
void Scheduler::give_up_slot(Sequence& sequence) {
  sequence.num_recomputed_tokens += sequence.num_computed;
  blocks_.release(sequence);
  give_back_states(sequence);
  sequence.status = SequenceStatus::waiting;
  sequence.num_unknown = 0;  // drawn again when it is recomputed
  sequence.num_dropped_draws = 0;
  sequence.drafts.clear();
  ++sequence.num_preemptions;
  if (!sequence.is_held) waiting_.insert(&sequence);
}

void Scheduler::hold(Sequence& sequence) {
  sequence.is_held = true;
  if (sequence.num_unknown + sequence.num_dropped_draws == 0) return;
  running_.erase(std::ranges::find(running_, &sequence));
  give_up_slot(sequence);
}

void Scheduler::release(Sequence& sequence) {
  sequence.is_held = false;
  if (sequence.status == SequenceStatus::waiting) waiting_.insert(&sequence);
}

void Scheduler::commit(const ScheduledSequence& scheduled, std::span<const TokenId> new_tokens) {
  Sequence& sequence = *scheduled.sequence;
  if (!scheduled.is_current()) return;
  if (scheduled.first_token != sequence.num_computed) throw std::logic_error("commit: steps out of order");
  if (new_tokens.size() > static_cast<size_t>(scheduled.num_drawn())) {
    throw std::logic_error("commit: more new tokens than rows to draw from");
  }
  if (!new_tokens.empty() && sequence.num_dropped_draws > 0)
    throw std::logic_error("commit: a token that was drawn where others are known already");
  int32_t num_rejected = 0;
  if (scheduled.num_drafts > 0) {
    if (new_tokens.empty()) throw std::logic_error("commit: drafts, but no token was drawn");
    num_rejected = scheduled.num_drawn() - static_cast<int32_t>(new_tokens.size());
    sequence.drafts.clear();
  }
  // If the state has gone past the tokens that stand, all tokens of the step are computed again.
  const int32_t num_undone =
      scheduled.state_before >= 0 && num_rejected > 0 ? scheduled.num_tokens : num_rejected;
  sequence.num_computed += scheduled.num_tokens - num_undone;
  sequence.num_unscored -= scheduled.num_scored_rows();
  sequence.num_scheduled -= num_undone;
  (sequence.num_dropped_draws > 0 ? sequence.num_dropped_draws : sequence.num_unknown) -=
      scheduled.num_drawn();
  sequence.tokens.insert(sequence.tokens.end(), new_tokens.begin(), new_tokens.end());
  blocks_.publish(sequence);
  if (scheduled.state_before >= 0 && num_rejected > 0) {
    sequence.state_before = scheduled.state_before;
  } else if (scheduled.state_before >= 0) {
    state_copies_.drop(scheduled.state_before);
  }
  if (scheduled.state_copy >= 0) {
    const auto last_block = static_cast<size_t>(sequence.num_computed / blocks_.block_size()) - 1;
    state_copies_.keep(scheduled.state_copy, blocks_.content(sequence.blocks[last_block]));
  }
  blocks_.release_behind_window(sequence);
}

void Scheduler::append(Sequence& sequence, std::span<const TokenId> tokens) {
  if (sequence.status == SequenceStatus::finished || sequence.num_output_tokens() == 0)
    throw std::logic_error("append: the sequence has ended, or has drawn no token");
  if (std::ssize(tokens) > sequence.max_tokens - sequence.num_output_tokens())
    throw std::logic_error("append: more tokens than max_tokens");
  if (tokens.empty()) return;
  sequence.num_dropped_draws += std::exchange(sequence.num_unknown, 0);
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.end());
}

void Scheduler::finish(Sequence& sequence, FinishReason reason) {
  if (sequence.status == SequenceStatus::finished) return;
  if (sequence.status == SequenceStatus::waiting) waiting_.erase(&sequence);
  if (sequence.status == SequenceStatus::running) {
    running_.erase(std::lower_bound(running_.begin(), running_.end(), &sequence, served_before_));
    blocks_.release(sequence);
    give_back_states(sequence);
  }
  sequence.status = SequenceStatus::finished;
  sequence.finish = reason;
}

}  // namespace minfer
