// The scheduler's work where a model's layers keep states of sequences. Prefixes end where a copy of a state is kept, and pieces
// of prompts end where one is made. Rejected drafts have changed the state. So the state in front of drafts is copied; after a
// rejection the next step begins with the copy and recomputes the tokens that stand. It may have drafts too, and then keeps the copy.

#include <utility>

#include "engine/scheduling/scheduler.h"

namespace minfer {

/// Where the state is needed too, blocks alone are not a prefix.
void Scheduler::end_match_at_copy() {
  size_t num_blocks = match_.blocks.size();
  while (num_blocks > 0 && !state_copies_.contains(blocks_.content(match_.blocks[num_blocks - 1])))
    --num_blocks;
  blocks_.shorten(match_, static_cast<int32_t>(num_blocks));
}

/// Makes a newly admitted sequence begin with the state behind its cached prefix.
void Scheduler::restore_state(Sequence& sequence) {
  sequence.last_state_copy = sequence.num_computed;
  sequence.num_shared_tokens = match_.num_of_prompts * blocks_.block_size();
  if (match_.blocks.empty()) return;
  const int32_t copy = state_copies_.use(blocks_.content(match_.blocks.back()));
  batch_.state_restores.push_back({copy, sequence.state_slot});
}

/// True if a copy is to be made behind the sequence's next tokens; a prompt's next tokens are cut to end there.
bool Scheduler::cut_at_copy(const Sequence& sequence, int32_t& num_tokens) const {
  if (!state_copies_.has_room() || sequence.is_scoring()) return false;
  const int64_t at = next_state_copy(options_.state_copy_rule, {.block_size = blocks_.block_size(),
                                                                .num_scheduled = sequence.num_scheduled,
                                                                .last_copy = sequence.last_state_copy,
                                                                .num_prefill = sequence.num_prefill_tokens,
                                                                .num_shared = sequence.num_shared_tokens});
  const int64_t num_before = at - sequence.num_scheduled;
  if (num_before > num_tokens || (sequence.is_decoding() && num_before < num_tokens)) return false;
  num_tokens = static_cast<int32_t>(num_before);
  return true;
}

/// True if drafts may follow `num_tokens` tokens: always, if there are no states. A rejection recomputes few
/// tokens, and a copy of the state behind this step must not contain drafts.
bool Scheduler::may_undo(const Sequence& sequence, int32_t num_tokens, bool is_copied) const {
  if (!options_.is_recurrent) return true;
  return num_tokens <= kMostRepeatedTokens && !is_copied &&
         (sequence.state_before >= 0 || state_copies_.has_room());
}

/// The slot with the state in front of the sequence's tokens of this step, if it has drafts; otherwise, and without states, -1. After
/// a rejection this is the state with which the tokens begin.
int32_t Scheduler::state_before(Sequence& sequence, bool has_drafts) {
  if (!options_.is_recurrent) return -1;
  const int32_t kept = std::exchange(sequence.state_before, -1);
  if (kept >= 0) batch_.state_restores.push_back({kept, sequence.state_slot});
  if (has_drafts && kept < 0) {
    batch_.state_restores.push_back({sequence.state_slot, state_copies_.begin(sequence)});
    return batch_.state_restores.back().to;
  }
  if (has_drafts || kept < 0) return kept;
  state_copies_.drop(kept);
  return -1;
}

void Scheduler::give_back_states(Sequence& sequence) {
  state_slots_.give_back(sequence);
  state_copies_.abandon(sequence);
  sequence.state_before = -1;
}

/// The slot for a copy of the state behind the sequence's scheduled tokens.
int32_t Scheduler::begin_copy(Sequence& sequence) {
  sequence.last_state_copy = sequence.num_scheduled;
  batch_.state_saves.push_back({sequence.state_slot, state_copies_.begin(sequence)});
  return batch_.state_saves.back().to;
}

}  // namespace minfer
