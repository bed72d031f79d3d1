#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/options/engine_options.h"
#include "engine/scheduling/scheduler.h"
#include "kernels/forward_batch.h"
#include "kernels/work.h"

namespace minfer {

/// The inputs of a step in host memory, with the layout of ForwardBatch. The vectors have
/// their largest size from the start; the counts say how much of each this step uses.
struct HostBatch {
  int32_t num_tokens = 0;
  int32_t num_sequences = 0;
  int32_t num_decode_sequences = 0;
  int32_t num_decode_tokens = 0;
  int32_t num_logit_rows = 0;
  int32_t max_blocks = 0;  ///< blocks of max_model_len tokens: the same in every step
  int32_t window_row = 0;  ///< max_num_seqs if layers with windows have a table of their own; else 0

  std::vector<int32_t> token_ids;  ///< [max_num_batched_tokens]; -1 - r: what row r of the step before drew
  std::vector<int32_t> positions;  ///< [max_num_batched_tokens]
  std::vector<int32_t> slots;      ///< [max_num_batched_tokens]
  std::vector<int32_t> window_slots;  ///< [max_num_batched_tokens]; empty where there is one table
  std::vector<int32_t> query_start;   ///< [max_num_seqs + 1]
  std::vector<int32_t> context_len;   ///< [max_num_seqs]
  std::vector<int32_t> state_slots;   ///< [max_num_seqs]; empty where the model has no states
  /// [max_num_seqs, max_blocks], twice where there are two tables; entries past a sequence's blocks: any valid block.
  std::vector<int32_t> block_table;
  std::vector<int32_t> logit_rows;        ///< [max_num_batched_tokens]
  std::vector<BlockTableChange> changes;  ///< the new entries of block_table

  std::vector<StateCopy> state_restores, state_saves;

  BatchShape shape;

  /// A batch with the largest sizes of a step. `options`: all sizes are chosen.
  static HostBatch of(const EngineOptions& options);
  int32_t num_rows() const;  ///< of block_table
  /// The same arrays as pointers, for a backend that reads host memory.
  ForwardBatch view() const;
};

/// Turns a ScheduledBatch into the arrays that kernels read. No allocation, no padding; cost
/// O(tokens + sequences + new blocks in a row). If a sequence keeps its row from step to step,
/// only its new blocks are written, so that a decode step costs the same for any context length.
class BatchBuilder {
 public:
  /// `options`: all sizes are chosen, as for Scheduler. `windows`: windows of the
  /// model's layers, each size once; their work is counted (BatchShape::windows).
  explicit BatchBuilder(const EngineOptions& options, std::span<const AttentionWindow> windows = {});

  /// Valid until the next call.
  const HostBatch& build(const ScheduledBatch& scheduled);

 private:
  /// A row of the block table holds a sequence's first `num_blocks` entries since its last admission.
  struct Row {
    uint64_t arrival = UINT64_MAX;
    int32_t num_preemptions = 0;
    int32_t num_blocks = 0;
  };

  /// A sequence's table. To kernels, block b of it is `entries` blocks, from number b * `distance` on.
  struct Table {
    std::span<const BlockId> blocks;
    int32_t num_freed;
    int32_t entries;
    int32_t distance;
  };

  void add_tokens(const ScheduledSequence& scheduled);
  void add_block_rows(const Sequence& sequence);
  void add_block_row(const Sequence& sequence, const Table& table, int32_t row_index);

  const int32_t block_size_;
  const int32_t parts_;         ///< of a KV block (KvLayout)
  const int32_t window_parts_;  ///< parts of a KV block that serves layers with windows
  const int32_t block_tokens_;  ///< of all of them
  BatchShape no_tokens_;        ///< the shape with which every step begins
  HostBatch batch_;
  std::vector<Row> rows_;  ///< of the block table
};

}  // namespace minfer
