#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/request/sequence.h"

namespace minfer {

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
