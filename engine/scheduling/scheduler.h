#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/memory/block_manager.h"
#include "engine/memory/state_copies.h"
#include "engine/options/engine_options.h"
#include "engine/request/sequence.h"
#include "engine/scheduling/prefill_budget.h"
#include "kernels/forward_batch.h"

namespace minfer {

/// `options` with all sizes chosen.
BlockManagerOptions block_manager_options(const EngineOptions& options, uint64_t hash_key = 0);

/// The work of a step. Decoding sequences come first; within each kind, sequences are in the order of service.
struct ScheduledBatch {
  std::vector<ScheduledSequence> sequences;
  /// Copies before the step, in order, since one may write to a slot that another has read: states of sequences
  /// admitted on a prefix, states of sequences with rejected drafts, and copies of the states in front of drafts.
  std::vector<StateCopy> state_restores;
  std::vector<StateCopy> state_saves;  ///< copies after the step, for the prefix cache
  int32_t num_decode_sequences = 0;
  int32_t num_tokens = 0;
  int32_t num_preempted = 0;      ///< sequences sent back to the queue to make room
  int32_t prefix_hit_tokens = 0;  ///< tokens of sequences admitted in this step that were found in the cache
  int32_t prefill_budget = 0;     ///< prompt tokens that a PrefillBudget allowed; 0: there was none

  bool empty() const { return sequences.empty(); }
};

/// Decides which tokens the next step computes (continuous batching: Orca, Yu et al. 2022; chunked prefill beside decode: Sarathi-Serve,
/// Agrawal et al. 2024). Host only, deterministic, one thread; owns no sequence and no device memory.
///
/// Order of service: (priority, arrival), where priority counts under SchedulingPolicy::priority only. Under SchedulingPolicy::shortest
/// it is (service_order, arrival), where service_order is the tokens of all prompts that came before, plus twice its own. So a prompt
/// goes in front of a longer one that came before it, but not for ever: less than n tokens go in front of an earlier prompt of n tokens.
///
/// schedule() walks the running and the waiting sequences once, all in the one order of service:
/// - Budget. Decoding sequences get their tokens first, then their drafts. Prefill gets the rest,
///   in chunks if these are enabled; beside decoding, no more than a PrefillBudget allows, if
///   there is one. Drafts take free blocks only while every running sequence would still find one.
/// - Preemption. A sequence that finds no free block preempts the last running one in order, which gives up
///   its blocks, returns to its old place in the queue and is recomputed later. The last one preempts itself.
///   So the first in order always advances. Alone it always fits: enqueue() refuses a sequence that does not.
/// - Admission. A waiting sequence needs a slot, free blocks for all its tokens, and one more free
///   block for each running sequence to grow into: without these, a preemption would soon undo the
///   admission. Sequences behind the first in the queue never overtake it. Under the priority
///   policy it preempts running sequences that come after it, for their slots and blocks.
/// - States. Where a model's layers keep states, a cached prefix ends where a copy of a state is kept (StateCopies), and the
///   sequence begins with that copy. Chunks end where a copy is to be made (StateCopyRule); no decode step is cut for one.
/// A step costs time in proportion to the running sequences and the cached
/// prefix of the first waiting one, however many wait or have finished.
///
/// A step is schedule(), then commit() for each scheduled sequence. schedule() reads only `num_scheduled`,
/// and only commit() advances `num_computed`, so that the next batch can be scheduled while one still runs.
class Scheduler {
 public:
  /// `options` with all sizes chosen (none 0); `blocks` outlives the scheduler. At most max_num_batched_tokens sequences run at
  /// once, so that each can decode. Throws Error if chunked prefill is off and max_num_batched_tokens < max_model_len: a sequence of
  /// any length must then fit into one step. `prefill_limit` outlives the scheduler; null: prompts get all that decoding leaves.
  Scheduler(const EngineOptions& options, BlockManager& blocks, const PrefillBudget* prefill_limit = nullptr);

  /// Takes a sequence into the queue and caps its max_tokens to what fits into max_model_len and the KV cache. A sequence that can
  /// never run is finished as refused, and the reason returned, for people: limit and value found. A sequence that neither draws nor scores anything is finished.
  std::optional<std::string> enqueue(Sequence& sequence);

  /// The next step's work, valid until the next call. Empty only if nothing waits or runs, or if each running
  /// sequence waits for a commit or is held. With options.steps_ahead, a sequence whose newest token is not known yet
  /// (an uncommitted step draws it) is scheduled as well: up to that many such tokens, none if it waits_for_token.
  const ScheduledBatch& schedule();

  /// Takes a step's results for one sequence of its batch: marks its tokens computed, appends `new_tokens` and shares the filled
  /// blocks. `new_tokens`: none unless logits were wanted; with drafts at least one, all but the last being the first drafts.
  /// Drafts that are not among them count as neither scheduled nor computed. Does nothing unless scheduled.is_current().
  void commit(const ScheduledSequence& scheduled, std::span<const TokenId> new_tokens);
  /// Adds tokens that nothing had to draw: they are computed together with the newest token, in a step that
  /// draws what follows them. Tokens that uncommitted steps draw for the sequence are dropped: those steps must
  /// commit no new tokens of it. The sequence has drawn a token, runs or is held, and stays within max_tokens.
  void append(Sequence& sequence, std::span<const TokenId> tokens);

  /// Gives a decoding sequence blocks for draft tokens behind its own, if others do not need the
  /// blocks. Returns how many of `num_drafts` tokens it has blocks for. Between two schedule() calls.
  int32_t reserve_drafts(Sequence& sequence, int32_t num_drafts);

  /// Keeps a sequence out of the steps to come until release(). If an uncommitted
  /// step draws for it, it is preempted: that step's token is not wanted.
  void hold(Sequence& sequence);
  void release(Sequence& sequence);

  /// Ends a sequence in any state, at once: takes it from its queue and releases its blocks. A cancellation
  /// is finish(sequence, FinishReason::cancelled). Does nothing if it has finished already.
  void finish(Sequence& sequence, FinishReason reason);

  /// Calls `call` with each sequence that is admitted and may use cached prefixes, before it gets tokens: none while Sequence::read_end.
  void on_admission(std::function<void(Sequence&)> call) { on_admission_ = std::move(call); }

  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  std::span<Sequence* const> running() const { return running_; }  ///< in order of service
  const BlockManager& blocks() const { return blocks_; }
  const StateSlots& state_slots() const { return state_slots_; }
  const StateCopies& state_copies() const { return state_copies_; }

 private:
  /// Strict order of service.
  struct ServedBefore {
    SchedulingPolicy policy;
    bool operator()(const Sequence* a, const Sequence* b) const {
      if (policy == SchedulingPolicy::priority && a->priority != b->priority)
        return a->priority < b->priority;
      if (policy == SchedulingPolicy::shortest && a->service_order != b->service_order)
        return a->service_order < b->service_order;
      return a->arrival < b->arrival;
    }
  };

  int32_t num_schedulable(const Sequence& sequence) const;
  void match_prefix(Sequence& sequence);
  std::optional<std::string> refusal(const Sequence& sequence) const;
  void begin_step();
  void limit_prefill();
  bool first_waiting_is_next(size_t num_visited) const;
  bool admit_first_waiting(size_t num_visited);
  bool make_room(Sequence& sequence, size_t num_visited);
  int64_t num_needed_blocks(const Sequence& sequence, size_t num_others) const;
  void reserve_full_size(Sequence& sequence) const;
  bool schedule_running(size_t index);
  int32_t take_drafts(Sequence& sequence, int32_t num_tokens, bool is_copied);
  void add_to_batch(Sequence& sequence, int32_t num_tokens, bool is_copied);
  void end_match_at_copy();
  void restore_state(Sequence& sequence);
  bool cut_at_copy(const Sequence& sequence, int32_t& num_tokens) const;
  int32_t begin_copy(Sequence& sequence);
  bool may_undo(const Sequence& sequence, int32_t num_tokens, bool is_copied) const;
  int32_t state_before(Sequence& sequence, bool has_drafts);
  void give_back_states(Sequence& sequence);
  void preempt_last();
  void give_up_slot(Sequence& sequence);

  const EngineOptions options_;
  const int32_t num_slots_;
  const int64_t kv_capacity_;  ///< tokens
  BlockManager& blocks_;
  StateSlots state_slots_;
  StateCopies state_copies_;
  const PrefillBudget* const prefill_limit_;
  const ServedBefore served_before_;
  std::function<void(Sequence&)> on_admission_;
  std::set<Sequence*, ServedBefore> waiting_;
  std::vector<Sequence*> running_;  ///< sorted by served_before_
  uint64_t next_arrival_ = 0;
  uint64_t num_arrived_tokens_ = 0;  ///< of prompts

  // The step being scheduled. running_[0, num_visited) have been given their tokens or passed over.
  ScheduledBatch batch_;
  std::vector<ScheduledSequence> prefills_;  ///< appended to the batch behind the decoding sequences
  int32_t decode_budget_ = 0;                ///< tokens left for decoding sequences
  int32_t draft_budget_ = 0;                 ///< draft tokens left for them
  int32_t prefill_budget_ = 0;               ///< prompt tokens left for the others
  PrefixMatch match_;                        ///< of the first waiting sequence
};

}  // namespace minfer
