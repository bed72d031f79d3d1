#pragma once

#include <cstdint>
#include <span>

namespace minfer {

/// Blocks [first, first + count) of row `row` of a block table.
struct BlockTableChange {
  int32_t row;
  int32_t first;
  int32_t count;
};

/// A copy of a sequence's states (RecurrentLayer) of all layers, from one slot to another.
struct StateCopy {
  int32_t from;
  int32_t to;

  bool operator==(const StateCopy&) const = default;
};

/// The device inputs of one step: all tokens that run through the decoder together, sequence after sequence,
/// the decoding sequences first. All pointers are to backend memory. A sequence may bring any number of
/// tokens, also while it decodes.
struct ForwardBatch {
  int32_t num_tokens = 0;
  int32_t num_sequences = 0;
  int32_t num_decode_sequences = 0;  ///< sequences [0, num_decode_sequences) are decoding, the others prefill
  int32_t num_decode_tokens = 0;     ///< tokens [0, num_decode_tokens) belong to decoding sequences
  int32_t num_logit_rows = 0;        ///< tokens whose logits are computed
  int32_t max_blocks = 0;            ///< row length of block_table
  /// The row of block_table from which on sequences have their blocks of layers with windows; 0: one table serves all layers.
  int32_t window_row = 0;

  const int32_t* token_ids = nullptr;     ///< [num_tokens]
  const int32_t* positions = nullptr;     ///< [num_tokens] position in the sequence, from 0
  const int32_t* slots = nullptr;         ///< [num_tokens] destination of K, V: block * block_size + offset
  const int32_t* window_slots = nullptr;  ///< the same for layers with windows; null unless window_row is set
  const int32_t* query_start = nullptr;   ///< [num_sequences + 1] first token of each sequence
  /// [num_sequences] tokens in the cache after this step has written its own
  const int32_t* context_len = nullptr;
  const int32_t* block_table =
      nullptr;  ///< [num_sequences or more, max_blocks] blocks of each sequence in order
  const int32_t* state_slots =
      nullptr;  ///< [num_sequences] slots of states (RecurrentLayer); null: the model's layers have none
  /// Entries of block_table that differ from the step before: a device copies only these.
  std::span<const BlockTableChange> changes = {};
  const int32_t* logit_rows = nullptr;  ///< [num_logit_rows] indices into the tokens, ascending
  /// Copies to make before the step reads any state, and after it has written its own. The code that launches the step makes them,
  /// not an op (RecurrentStatePool::copy()).
  std::span<const StateCopy> state_restores = {}, state_saves = {};

  /// The batch with the blocks of layers with windows, as these layers see it.
  ForwardBatch of_windows() const {
    ForwardBatch batch = *this;
    if (window_row == 0) return batch;
    batch.slots = window_slots;
    batch.block_table += int64_t{window_row} * max_blocks;
    return batch;
  }
};

}  // namespace minfer
