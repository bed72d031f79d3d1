#include "engine/scheduling/batch_builder.h"

#include <algorithm>

#include "engine/options/sizes.h"
#include "kernels/base/error.h"

namespace minfer {
namespace {

/// The token at a position of a sequence; -1 - r if row r of the step before drew it.
int32_t token_at(const ScheduledSequence& scheduled, int32_t position) {
  const Sequence& sequence = *scheduled.sequence;
  const int32_t behind = position - sequence.size();
  if (behind < 0) return sequence.tokens[static_cast<size_t>(position)];
  return behind < std::ssize(sequence.drafts) ? sequence.drafts[static_cast<size_t>(behind)]
                                              : -1 - sequence.logit_row;
}

}  // namespace

BatchBuilder::BatchBuilder(const EngineOptions& options, std::span<const AttentionWindow> windows)
    : block_size_(options.block_size),
      parts_(options.kv_layout.value_or(KvLayout{}).parts),
      window_parts_(options.kv_layout.value_or(KvLayout{}).window_parts),
      block_tokens_(parts_ * block_size_),
      batch_(HostBatch::of(options)) {
  if (windows.size() > BatchShape::kMaxWindows) {
    fail("attention windows: {} sizes, expected {} at most", windows.size(), BatchShape::kMaxWindows);
  }
  for (size_t i = 0; i < windows.size(); ++i)
    no_tokens_.windows[i].window = windows[i];
  rows_.resize(static_cast<size_t>(batch_.num_rows()));
  batch_.changes.reserve(rows_.size());
}

HostBatch HostBatch::of(const EngineOptions& options) {
  HostBatch batch;
  const auto max_tokens = static_cast<size_t>(options.max_num_batched_tokens);
  const auto max_seqs = static_cast<size_t>(std::min(options.max_num_seqs, options.max_num_batched_tokens));
  const bool has_window_table = options.kv_layout.value_or(KvLayout{}).has_window_table;
  batch.max_blocks = static_cast<int32_t>(blocks_for(options.max_model_len, options.block_size));
  batch.window_row = has_window_table ? static_cast<int32_t>(max_seqs) : 0;
  batch.token_ids.resize(max_tokens);
  batch.positions.resize(max_tokens);
  batch.slots.resize(max_tokens);
  batch.window_slots.resize(has_window_table ? max_tokens : 0);
  batch.query_start.resize(max_seqs + 1);
  batch.context_len.resize(max_seqs);
  batch.state_slots.resize(options.num_state_slots > 0 ? max_seqs : 0);
  batch.block_table.resize((has_window_table ? 2 : 1) * max_seqs * static_cast<size_t>(batch.max_blocks));
  batch.logit_rows.resize(max_tokens);
  return batch;
}

int32_t HostBatch::num_rows() const {
  return static_cast<int32_t>(block_table.size()) / max_blocks;
}

const HostBatch& BatchBuilder::build(const ScheduledBatch& scheduled) {
  batch_.num_tokens = 0;
  batch_.num_sequences = 0;
  batch_.num_decode_sequences = scheduled.num_decode_sequences;
  batch_.num_decode_tokens = 0;
  batch_.num_logit_rows = 0;
  batch_.shape = no_tokens_;
  batch_.changes.clear();
  batch_.state_restores = scheduled.state_restores;
  batch_.state_saves = scheduled.state_saves;
  for (const ScheduledSequence& each : scheduled.sequences) {
    const bool is_decode = batch_.num_sequences < scheduled.num_decode_sequences;
    add_block_rows(*each.sequence);
    add_tokens(each);
    batch_.shape.add_sequence(is_decode, each.first_token + each.num_tokens, each.num_tokens,
                              each.num_logit_rows);
    if (is_decode) batch_.num_decode_tokens = batch_.num_tokens;
  }
  return batch_;
}

void BatchBuilder::add_block_rows(const Sequence& sequence) {
  add_block_row(sequence, {sequence.blocks, sequence.num_freed_blocks, parts_, parts_}, batch_.num_sequences);
  if (batch_.window_row == 0) return;
  add_block_row(sequence, {sequence.window_blocks, sequence.num_freed_window_blocks, 1, window_parts_},
                batch_.window_row + batch_.num_sequences);
}

void BatchBuilder::add_block_row(const Sequence& sequence, const Table& table, int32_t row_index) {
  Row& row = rows_[static_cast<size_t>(row_index)];
  if (row.arrival != sequence.arrival || row.num_preemptions != sequence.num_preemptions) {
    // Places of freed blocks are never read: they keep their old entries, which name existing blocks.
    row = {sequence.arrival, sequence.num_preemptions, table.num_freed * table.entries};
  }
  const int32_t num_blocks =
      std::min(batch_.max_blocks, static_cast<int32_t>(table.blocks.size()) * table.entries);
  if (num_blocks <= row.num_blocks) return;
  int32_t* const to = batch_.block_table.data() + int64_t{row_index} * batch_.max_blocks;
  for (int32_t i = row.num_blocks; i < num_blocks; ++i) {
    const BlockId block = table.blocks[static_cast<size_t>(i / table.entries)];
    to[i] = std::max(block, 0) * table.distance + i % table.entries;
  }
  batch_.changes.push_back({row_index, row.num_blocks, num_blocks - row.num_blocks});
  row.num_blocks = num_blocks;
}

void BatchBuilder::add_tokens(const ScheduledSequence& scheduled) {
  const Sequence& sequence = *scheduled.sequence;
  const auto sequence_index = static_cast<size_t>(batch_.num_sequences++);
  batch_.query_start[sequence_index] = batch_.num_tokens;
  batch_.query_start[sequence_index + 1] = batch_.num_tokens + scheduled.num_tokens;
  batch_.context_len[sequence_index] = scheduled.first_token + scheduled.num_tokens;
  if (!batch_.state_slots.empty()) batch_.state_slots[sequence_index] = sequence.state_slot;
  for (int32_t i = 0; i < scheduled.num_tokens; ++i) {
    const auto token = static_cast<size_t>(batch_.num_tokens + i);
    const int32_t position = scheduled.first_token + i;
    batch_.token_ids[token] = token_at(scheduled, position);
    batch_.positions[token] = position;
    const BlockId block = sequence.blocks[static_cast<size_t>(position / block_tokens_)];
    batch_.slots[token] = block * block_tokens_ + position % block_tokens_;
    if (batch_.window_row == 0) continue;
    const BlockId window_block = sequence.window_blocks[static_cast<size_t>(position / block_size_)];
    batch_.window_slots[token] = window_block * window_parts_ * block_size_ + position % block_size_;
  }
  batch_.num_tokens += scheduled.num_tokens;
  if (scheduled.num_drawn() > 0) scheduled.sequence->logit_row = batch_.num_logit_rows + scheduled.num_scored;
  for (int32_t i = scheduled.num_logit_rows; i > 0; --i) {
    batch_.logit_rows[static_cast<size_t>(batch_.num_logit_rows++)] = batch_.num_tokens - i;
  }
}

ForwardBatch HostBatch::view() const {
  return {
      .num_tokens = num_tokens,
      .num_sequences = num_sequences,
      .num_decode_sequences = num_decode_sequences,
      .num_decode_tokens = num_decode_tokens,
      .num_logit_rows = num_logit_rows,
      .max_blocks = max_blocks,
      .window_row = window_row,
      .token_ids = token_ids.data(),
      .positions = positions.data(),
      .slots = slots.data(),
      .window_slots = window_row > 0 ? window_slots.data() : nullptr,
      .query_start = query_start.data(),
      .context_len = context_len.data(),
      .block_table = block_table.data(),
      .state_slots = state_slots.empty() ? nullptr : state_slots.data(),
      .changes = changes,
      .logit_rows = logit_rows.data(),
      .state_restores = state_restores,
      .state_saves = state_saves,
  };
}

}  // namespace minfer
