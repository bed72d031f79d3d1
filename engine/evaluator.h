#pragma once

#include <functional>
#include <span>

#include "engine/model_runner.h"

namespace minfer {

/// Runs one sequence through a model outside the engine and returns the logits of every position, for perplexity and golden tests.
class Evaluator {
 public:
  /// `source` outlives the evaluator. Every token of a step takes a row of logits: memory for
  /// max_num_batched_tokens * vocab_size floats. Options of the scheduler change nothing here.
  Evaluator(const ModelSource& source, const EngineOptions& options, const LoadProgress& progress = {});

  /// Called with a chunk's first position and its logits [chunk, vocab_size].
  using OnLogits = std::function<void(int32_t first_position, std::span<const float> logits)>;

  /// Computes `tokens` from an empty context in chunks of `chunk` tokens (0: as many as a step takes; at most
  /// max_num_batched_tokens). Throws Error if there are more than max_model_len tokens or if one is not in the vocabulary.
  void run(std::span<const TokenId> tokens, int32_t chunk, const OnLogits& on_logits);

  int32_t vocab_size() const { return vocab_size_; }
  const EngineOptions& options() const { return runner_.options(); }

 private:
  void run_chunk(std::span<const TokenId> tokens, int32_t first, int32_t count, const OnLogits& on_logits);

  const ModelSource& source_;
  int32_t vocab_size_;
  ModelRunner runner_;
  std::vector<int32_t>
      block_table_;  ///< block i holds the i-th tokens of all layers: nobody else uses the cache
};

}  // namespace minfer
