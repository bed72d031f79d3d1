#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/block_manager.h"
#include "engine/engine_options.h"
#include "engine/sequence.h"

namespace minfer {

/// What one sequence brings to a step: its tokens [first_token, first_token + num_tokens).
struct ScheduledSequence {
  Sequence* sequence = nullptr;
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t num_logit_rows =
      0;  ///< its last tokens whose logits are wanted; 0 for a chunk that does not end the prompt
};

/// What a step computes. Decoding sequences come first; within each kind, the order of service.
struct ScheduledBatch {
  std::vector<ScheduledSequence> sequences;
  int32_t num_decode_sequences = 0;
  int32_t num_tokens = 0;
  int32_t num_preempted = 0;      ///< sequences sent back to the queue to make room
  int32_t prefix_hit_tokens = 0;  ///< tokens of sequences admitted in this step that were found in the cache

  bool empty() const { return sequences.empty(); }
};

enum class RefusalReason : uint8_t {
  empty_prompt,
  no_output,          ///< max_tokens < 1
  context_length,     ///< prompt and one output token exceed max_model_len
  kv_cache_capacity,  ///< the prompt does not fit into the whole KV cache
};

struct Refusal {
  RefusalReason reason;
  std::string detail;  ///< for people: limit and value found
};

/// Decides which tokens the next step computes (continuous batching: Orca, Yu et al. 2022; chunked prefill
/// beside decode: Sarathi-Serve, Agrawal et al. 2024). Host only, deterministic, one thread; owns no sequence
/// and no memory of a device.
///
/// Order of service: (priority, arrival), priority counting under SchedulingPolicy::priority only. schedule()
/// walks running and waiting sequences in this order once:
/// - The token budget goes to decoding sequences first; what is left goes to prefill, in chunks if these are
/// enabled.
/// - A sequence that finds no free block preempts the last in order, which gives up its blocks and waits to
/// be
///   recomputed; its place in the queue is its old one. If it is itself the last, it is the one to go. So the
///   first in order always advances, and alone it fits: enqueue() refuses what does not.
/// - A waiting sequence is admitted if a seat is free, if all its tokens fit into free blocks and if one
/// block then remains for
///   each running sequence to grow into: else the admission would soon be undone by a preemption. A first in
///   the queue that does not fit is not overtaken. Under the priority policy it preempts running sequences of
///   lower priority for a seat or blocks. Nothing else is admitted in a step that preempted.
/// The cost of a step is proportional to the running sequences and the blocks it touches, whatever waits or
/// has finished.
///
/// A step is schedule(), then commit() for each scheduled sequence. schedule() looks at `num_scheduled` alone
/// and commit() advances `num_computed`, so a batch can be scheduled while the one before it still runs, once
/// its sampled tokens have places.
class Scheduler {
 public:
  /// `options` with all sizes chosen (none 0); `blocks` outlives the scheduler. Throws Error if a size is not
  /// positive, if max_num_batched_tokens < max_num_seqs (each decoding sequence needs a token), or if chunked
  /// prefill is off and max_num_batched_tokens < max_model_len (a sequence is then computed whole, also after
  /// a preemption).
  Scheduler(const EngineOptions& options, BlockManager& blocks);

  /// Takes a sequence into the queue and caps its max_tokens to what fits into max_model_len and the KV
  /// cache. A sequence that can never run is finished as refused, and told why.
  std::optional<Refusal> enqueue(Sequence& sequence);

  /// The next step's work; valid until the next call. Empty only if nothing waits or runs, or if each running
  /// sequence waits for a commit.
  const ScheduledBatch& schedule();

  /// Takes what a step gave for one sequence of its batch: marks its tokens computed, shares the blocks they
  /// filled, appends `new_tokens` (none unless logits were wanted). Does nothing for a sequence that no
  /// longer runs.
  void commit(const ScheduledSequence& scheduled, std::span<const TokenId> new_tokens);

  /// Ends a sequence in any state, at once: takes it from its queue and releases its blocks. A cancellation
  /// is finish(sequence, FinishReason::cancelled). Does nothing if it has finished already.
  void finish(Sequence& sequence, FinishReason reason);

  int32_t num_waiting() const { return static_cast<int32_t>(waiting_.size()); }
  int32_t num_running() const { return static_cast<int32_t>(running_.size()); }
  bool has_work() const { return !waiting_.empty() || !running_.empty(); }
  std::span<Sequence* const> running() const { return running_; }  ///< in order of service
  const BlockManager& blocks() const { return blocks_; }

 private:
  /// Strict order of service.
  struct ServedBefore {
    bool by_priority;
    bool operator()(const Sequence* a, const Sequence* b) const {
      if (by_priority && a->priority != b->priority) return a->priority < b->priority;
      return a->arrival < b->arrival;
    }
  };

  std::optional<Refusal> refusal(const Sequence& sequence) const;
  int32_t pending_decode_tokens() const;
  bool schedule_running(size_t index);
  bool admit_first_waiting(size_t num_visited);
  bool make_room(Sequence& sequence, size_t num_visited, PrefixMatch& match);
  bool fits(const Sequence& sequence, const PrefixMatch& match) const;
  bool may_admit() const;
  void add_to_batch(Sequence& sequence, int32_t num_tokens);
  void preempt_last();
  void remove_running(Sequence& sequence);

  const EngineOptions options_;
  BlockManager& blocks_;
  ServedBefore served_before_;
  std::set<Sequence*, ServedBefore> waiting_;
  std::vector<Sequence*> running_;  ///< sorted by served_before_
  uint64_t next_arrival_ = 0;

  ScheduledBatch batch_;
  std::vector<ScheduledSequence>
      prefills_;                ///< of the step being scheduled; they follow the decodes in the batch
  int32_t decode_budget_ = 0;   ///< tokens left in this step for decoding sequences
  int32_t prefill_budget_ = 0;  ///< and for the others
};

}  // namespace minfer
