#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/request/request.h"
#include "models/tokenizer/tokenizer.h"
#include "profiling/record/ended_request.h"

namespace minfer {

using BlockId = int32_t;
/// Names the content of a full block for all processes and times (hash_behind()).
using BlockKey = std::array<unsigned char, 32>;
/// In a sequence's block table: the block has been given back, since no layer reads it again.
inline constexpr BlockId kFreedBlock = -1;

struct LiveRequest;

enum class SequenceStatus : uint8_t {
  created,   ///< not enqueued yet
  waiting,   ///< holds no blocks; new, or preempted and to be recomputed
  running,   ///< holds a slot and blocks
  finished,  ///< holds no blocks; `finish` says why
};

/// One request on its way through the engine: its tokens, how many of them are in the KV cache,
/// and the blocks they are in. Tokens are counted, not phased: a sequence is decoding when
/// every token but the last has been computed, and it may bring any number of tokens to a step.
///
/// Owner: the engine, which keeps it at one address until it is finished and no uncommitted ScheduledBatch
/// names it. Fields under "scheduler" are written by Scheduler and BlockManager only, those under "engine"
/// by the engine only. Always: num_computed <= num_scheduled <= size() + num_unknown; blocks covers at
/// least num_scheduled tokens while running.
struct Sequence {
  Sequence(std::string request_id, std::vector<TokenId> prompt, int32_t max_output_tokens,
           int32_t request_priority = 0)
      : id(std::move(request_id)),
        tokens(std::move(prompt)),
        num_prompt_tokens(static_cast<int32_t>(tokens.size())),
        max_tokens(max_output_tokens),
        draws(max_output_tokens > 0),
        priority(request_priority) {}
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  std::string id;
  std::vector<TokenId> tokens;  ///< prompt, then generated tokens; Scheduler::commit and append add to it
  int32_t num_prompt_tokens;
  int32_t max_tokens;  ///< the most output tokens; Scheduler::enqueue caps it to what fits
  /// False: nothing is drawn behind `tokens`, so the last token is not computed. Set between two steps.
  bool draws;
  /// The number of last `tokens` whose logprobs are wanted and not known yet: the logits in front of them are wanted. Set
  /// before it is enqueued and when tokens are appended; Scheduler::commit() takes off the tokens that a step has scored.
  int32_t num_unscored = 0;
  /// The choice of its next token, or of its drafts, depends on the last token,
  /// so nothing is drawn before that token is known. Set between two steps.
  bool waits_for_token = false;
  /// The choice of its next token is not known yet: it is scheduled no further. Set by Scheduler::hold() and release().
  bool is_held = false;
  /// Guesses of the tokens behind `tokens`: the next step computes them too and draws behind each (see speculation/). The engine gives
  /// them while it knows all of `tokens`; the scheduler takes fewer where there is no room, and forgets them when the step is over.
  std::vector<TokenId> drafts;
  std::string cache_salt;  ///< shares cached prefixes only with equal salts; set before it is enqueued
  int32_t priority;        ///< lower is served first under SchedulingPolicy::priority

  // Scheduler
  SequenceStatus status = SequenceStatus::created;
  std::optional<FinishReason> finish;
  uint64_t arrival = 0;        ///< order of arrival, unique in a scheduler, never reused
  uint64_t service_order = 0;  ///< under SchedulingPolicy::shortest: the lower is served first
  int32_t num_scheduled = 0;   ///< tokens whose KV is written once all steps handed out so far have run
  /// Tokens whose KV is written: found in the cache, or computed by a committed step.
  int32_t num_computed = 0;
  int32_t num_unknown = 0;         ///< the most tokens behind `tokens` that uncommitted steps draw
  int32_t num_dropped_draws = 0;   ///< draws of uncommitted steps that append() has replaced by other tokens
  int32_t num_prefill_tokens = 0;  ///< size() when last admitted: what it computes before it decodes (again)
  int32_t num_cached_tokens = 0;   ///< prompt tokens found in the prefix cache when it was first admitted
  int32_t num_preemptions = 0;
  int32_t num_recomputed_tokens = 0;  ///< computed again for preemptions: not found in the cache
  std::vector<BlockId>
      blocks;  ///< block table: token i lives in blocks[i / block_size]; kFreedBlock: nobody reads it again
  int32_t num_freed_blocks = 0;        ///< behind the window of every layer, given back while it runs
  int32_t num_published_blocks = 0;    ///< leading blocks that the prefix cache knows
  std::vector<uint64_t> block_hashes;  ///< chained hash of each leading full block, as far as it was needed
  std::vector<BlockKey>
      block_keys;  ///< the same keys, behind the key of the salt, where blocks are kept on disk
  /// Its blocks from num_computed to here are being read from disk, and no step computes for it; 0: nothing is read.
  int32_t read_end = 0;

  // Engine
  LiveRequest* owner = nullptr;  ///< whose sequence this is; null where there is no engine
  int32_t logit_row = -1;        ///< its row in the newest step that drew a token for it
  int64_t arrival_ns = 0;
  int64_t first_scheduled_ns = 0;
  int64_t first_token_ns = 0;
  int64_t last_token_ns = 0;
  RequestSteps steps;  ///< steps that computed something for it

  // Scheduler, where layers with windows have a block table of their own; behind the rest, which every step of every model reads
  std::vector<BlockId> window_blocks;
  int32_t state_slot = -1;      ///< slot of its state while it runs (StateSlots); -1: none
  int32_t last_state_copy = 0;  ///< tokens behind which its newest copy was made, or its cached prefix ended
  /// The slot of the state in front of drafts that were partly rejected; its next step begins with that state. -1: it has its own.
  int32_t state_before = -1;
  int32_t num_shared_tokens = 0;  ///< tokens in common with prompts whose blocks were cached at its admission
  int32_t num_freed_window_blocks = 0;  ///< leading blocks of it behind the window, given back while it runs

  int32_t size() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_output_tokens() const { return size() - num_prompt_tokens; }
  /// Tokens that no step has been given yet.
  int32_t num_pending() const { return num_to_compute() + num_unknown - num_scheduled; }
  int32_t num_to_compute() const { return size() - (draws ? 0 : 1); }  ///< of the tokens that are known
  /// True if everything it was admitted with is scheduled: from now on it brings only tokens that it has just generated.
  bool is_decoding() const { return num_scheduled >= num_prefill_tokens; }
  bool is_scoring() const { return num_unscored > 0; }
  int32_t num_held_blocks() const {
    return static_cast<int32_t>(blocks.size() + window_blocks.size()) - num_freed_blocks -
           num_freed_window_blocks;
  }
  bool reached_max_tokens() const { return num_output_tokens() >= max_tokens; }
};

/// The tokens that one sequence brings to a step: [first_token, first_token + num_tokens).
struct ScheduledSequence {
  Sequence* sequence = nullptr;
  int32_t first_token = 0;
  int32_t num_tokens = 0;
  int32_t num_logit_rows = 0;  ///< number of its last tokens whose logits are wanted; 0 before a prompt's end
  int32_t num_preemptions = 0;  ///< the sequence's count when it was scheduled
  int32_t num_scored = 0;       ///< number of first rows that score known tokens and draw nothing
  int32_t num_drafts = 0;       ///< number of its last tokens that are Sequence::drafts, each with a row
  int32_t state_copy = -1;      ///< slot of a copy of its state behind these tokens; -1: none is made
  int32_t state_before = -1;    ///< with drafts: slot of a copy of its state in front of these tokens

  int32_t num_drawn() const { return num_logit_rows - num_scored; }
  /// Rows that score, as known when the step is committed. A row whose draw was dropped also scores: it is in front of a known token.
  int32_t num_scored_rows() const {
    return sequence->num_dropped_draws > 0 ? std::min(sequence->num_unscored, num_drawn()) : num_scored;
  }
  int32_t first_row() const {
    return first_token + num_tokens - num_logit_rows;
  }  ///< the token whose logits the first row has
  /// True if the step's results are still wanted: the sequence has neither ended nor been preempted since.
  bool is_current() const {
    return sequence->status == SequenceStatus::running && sequence->num_preemptions == num_preemptions;
  }
};

}  // namespace minfer
