#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/scheduling/batch_builder.h"
#include "engine/scheduling/scheduler.h"

namespace minfer::test {

/// A model without arithmetic that depends on every token it attends to, for tests of the code above the
/// decoder. For each slot it writes a hash of the sequence's tokens up to there to a shadow KV cache,
/// just as a decoder's keys and values depend on all tokens before them. It draws the next token from the
/// slots that it attends to. So a sequence's output depends on its prompt alone, unless a slot that it
/// reads was written by another prefix. With a window it also writes and checks the slots of layers that
/// have the window.
class ScriptedModel {
 public:
  static constexpr TokenId kEnd = 0;  ///< the token that ends a sequence

  ScriptedModel(int32_t num_blocks, int32_t block_size, int32_t vocab_size, uint64_t seed,
                AttentionWindow window = {});

  /// Runs a batch on its arrays alone. Returns one token for each logit row. Throws std::logic_error if
  /// the arrays contradict each other, or if a slot that is attended to was not written by its sequence's
  /// tokens. The model reads `scheduled` for this check only.
  std::vector<TokenId> forward(const HostBatch& batch, const ScheduledBatch& scheduled);

  /// The same on the batch that a backend gets, without the checks.
  std::vector<TokenId> forward(const ForwardBatch& batch);

  /// The tokens that follow `prompt` if it runs alone: up to `max_tokens`, with kEnd as the last if it is drawn.
  std::vector<TokenId> run_alone(std::vector<TokenId> prompt, int32_t max_tokens) const;

  /// The shadow cache, for control tests that spoil it.
  std::span<uint64_t> kv() { return kv_; }

 private:
  uint64_t prefix_hash(uint64_t before, TokenId token) const;
  TokenId next_token(uint64_t sum) const;
  void check_layout(const HostBatch& batch, const ScheduledBatch& scheduled) const;
  void check_attended(const ForwardBatch& batch, int32_t sequence_index, const Sequence& sequence) const;
  void check_window(const ForwardBatch& batch, int32_t sequence_index, const Sequence& sequence) const;
  size_t slot(const ForwardBatch& batch, int32_t sequence_index, int32_t position) const;

  int32_t block_size_;
  int32_t vocab_size_;
  uint64_t seed_;
  AttentionWindow window_;
  std::vector<uint64_t> kv_;  ///< [num_blocks * block_size]; poisoned until written
};

}  // namespace minfer::test
