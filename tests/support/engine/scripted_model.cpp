#include "tests/support/engine/scripted_model.h"

#include <stdexcept>
#include <utility>

#include <fmt/format.h>

namespace minfer::test {
namespace {

constexpr uint64_t kPoison = 0xDEADBEEFDEADBEEF;

template <class... Args>
void expect(bool holds, fmt::format_string<Args...> format, Args&&... args) {
  if (!holds) throw std::logic_error(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace

ScriptedModel::ScriptedModel(int32_t num_blocks, int32_t block_size, int32_t vocab_size, uint64_t seed,
                             AttentionWindow window)
    : block_size_(block_size),
      vocab_size_(vocab_size),
      seed_(seed),
      window_(window),
      kv_(static_cast<size_t>(num_blocks) * static_cast<size_t>(block_size), kPoison) {}

std::vector<TokenId> ScriptedModel::forward(const HostBatch& batch, const ScheduledBatch& scheduled) {
  check_layout(batch, scheduled);
  std::vector<TokenId> tokens = forward(batch.view());
  // After all writes, so that a sequence's write into another's slot is noticed.
  for (int32_t s = 0; s < batch.num_sequences; ++s) {
    check_attended(batch.view(), s, *scheduled.sequences[s].sequence);
    if (window_) check_window(batch.view().of_windows(), s, *scheduled.sequences[s].sequence);
  }
  return tokens;
}

std::vector<TokenId> ScriptedModel::forward(const ForwardBatch& batch) {
  // From the last sequence to the first: a sequence that shares a block which an earlier one writes in
  // this same step finds the block unwritten.
  for (int32_t s = batch.num_sequences - 1; s >= 0; --s) {
    for (int32_t t = batch.query_start[s]; t < batch.query_start[s + 1]; ++t) {
      const int32_t position = batch.positions[t];
      const uint64_t before = position == 0 ? seed_ : kv_[slot(batch, s, position - 1)];
      kv_[batch.slots[t]] = prefix_hash(before, batch.token_ids[t]);
      if (batch.window_row > 0) kv_[batch.window_slots[t]] = kv_[batch.slots[t]];
    }
  }
  std::vector<TokenId> tokens;
  int32_t s = 0;
  for (int32_t row = 0; row < batch.num_logit_rows; ++row) {
    const int32_t t = batch.logit_rows[row];
    while (batch.query_start[s + 1] <= t)
      ++s;
    uint64_t sum = 0;
    for (int32_t position = 0; position <= batch.positions[t]; ++position)
      sum += kv_[slot(batch, s, position)];
    tokens.push_back(next_token(sum));
  }
  return tokens;
}

std::vector<TokenId> ScriptedModel::run_alone(std::vector<TokenId> prompt, int32_t max_tokens) const {
  uint64_t hash = seed_;
  uint64_t sum = 0;
  for (const TokenId token : prompt)
    sum += hash = prefix_hash(hash, token);
  std::vector<TokenId> output;
  while (static_cast<int32_t>(output.size()) < max_tokens && (output.empty() || output.back() != kEnd)) {
    output.push_back(next_token(sum));
    sum += hash = prefix_hash(hash, output.back());
  }
  return output;
}

void ScriptedModel::check_layout(const HostBatch& batch, const ScheduledBatch& scheduled) const {
  expect(batch.num_sequences == static_cast<int32_t>(scheduled.sequences.size()),
         "{} sequences, {} scheduled", batch.num_sequences, scheduled.sequences.size());
  expect(batch.query_start[0] == 0 && batch.query_start[batch.num_sequences] == batch.num_tokens,
         "query_start does not span the {} tokens", batch.num_tokens);
  for (int32_t s = 0; s < batch.num_sequences; ++s) {
    const int32_t begin = batch.query_start[s], end = batch.query_start[s + 1];
    expect(begin < end, "sequence {} brings no tokens", s);
    for (int32_t t = begin; t < end; ++t) {
      const int32_t position = batch.context_len[s] - end + t;
      expect(batch.positions[t] == position, "token {}: position {}, expected {}", t, batch.positions[t],
             position);
      const auto place = static_cast<int32_t>(slot(batch.view(), s, position));
      expect(batch.slots[t] == place, "token {}: slot {}, but the block table says {}", t, batch.slots[t],
             place);
    }
  }
}

void ScriptedModel::check_attended(const ForwardBatch& batch, int32_t sequence_index,
                                   const Sequence& sequence) const {
  uint64_t hash = seed_;
  for (int32_t position = 0; position < batch.context_len[sequence_index]; ++position) {
    hash = prefix_hash(hash, sequence.tokens[position]);
    expect(kv_[slot(batch, sequence_index, position)] == hash,
           "sequence {} ({}): the KV it reads at position {} was not written by its tokens", sequence_index,
           sequence.id, position);
  }
}

/// `batch` is the batch as layers with windows see it.
void ScriptedModel::check_window(const ForwardBatch& batch, int32_t sequence_index,
                                 const Sequence& sequence) const {
  expect(batch.window_row > 0, "a model with windows, but no table of them");
  const int32_t begin = batch.query_start[sequence_index], end = batch.query_start[sequence_index + 1];
  const int32_t context = batch.context_len[sequence_index];
  const int32_t first_seen = window_.first_seen(context - (end - begin));
  uint64_t hash = seed_;
  for (int32_t position = 0; position < context; ++position) {
    hash = prefix_hash(hash, sequence.tokens[position]);
    expect(position < first_seen || kv_[slot(batch, sequence_index, position)] == hash,
           "sequence {} ({}): what its window reads at position {} was not written by its tokens",
           sequence_index, sequence.id, position);
  }
}

size_t ScriptedModel::slot(const ForwardBatch& batch, int32_t sequence_index, int32_t position) const {
  const int32_t block = batch.block_table[sequence_index * batch.max_blocks + position / block_size_];
  return static_cast<size_t>(block * block_size_ + position % block_size_);
}

uint64_t ScriptedModel::prefix_hash(uint64_t before, TokenId token) const {
  // The finaliser of SplitMix64 (Steele, Lea, Flood 2014).
  uint64_t hash = before + 0x9E3779B97F4A7C15 + static_cast<uint64_t>(token);
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EB;
  return hash ^ (hash >> 31);
}

TokenId ScriptedModel::next_token(uint64_t sum) const {
  return static_cast<TokenId>((sum >> 17) % static_cast<uint64_t>(vocab_size_));
}

}  // namespace minfer::test
