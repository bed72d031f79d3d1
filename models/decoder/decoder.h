#pragma once

#include <array>
#include <vector>

#include "models/decoder/emit/emitter.h"

namespace minfer {

/// The largest step a decoder must be able to run; its workspace is sized by them once.
struct DecoderLimits {
  int32_t max_tokens = 0;     ///< tokens of a step; any number of them may want logits
  int32_t logit_slice = 0;    ///< rows of logits that are computed at a time
  int32_t max_positions = 0;  ///< longest sequence
};

/// What a model's steps are on a backend.
struct DecoderPrograms {
  /// `memory` empty: to tell what they need.
  DecoderPrograms(const ModelConfig& config, const ModelWeights& weights, const DecoderMemory& memory,
                  const Target& target, const DecoderLimits& limits);

  FrameOps frame;
  std::array<Program, 2> variants;  ///< of one token, of more
  Arena arena;

  /// Every op of a step in order, the sampler's included; an OpId is an index into it. Types are those of several tokens: one token's x is
  /// too small to matter.
  const std::vector<OpInfo>& table() const { return variants[1].table; }
  /// Runs of ops in a step at the most: those of the head and the sampler come once a slice of logits.
  size_t max_op_runs(const DecoderLimits& limits) const;
};

/// What a backend's prepare() is told for such a decoder.
StepLimits step_limits(const ModelConfig& config, const DecoderPrograms& programs,
                       const DecoderLimits& limits, int32_t max_sequences, int32_t max_blocks);
/// Bytes of backend memory that a decoder allocates.
int64_t workspace_bytes(const ModelConfig& config, const DecoderPrograms& programs,
                        const DecoderLimits& limits);

/// Runs a model's program (models/decoder/emit/), which holds for all families, on a backend. Owned by the engine, called from its thread.
/// Holds references: backend, KV cache and states outlive it.
class Decoder {
 public:
  Decoder(const ModelConfig& config, ModelWeights weights, Backend& backend, const KvCache& kv,
          const RecurrentStatePool& states, const DecoderLimits& limits);

  const std::vector<OpInfo>& ops() const { return programs_.table(); }
  size_t max_op_runs() const { return programs_.max_op_runs(limits_); }
  const FrameOps& frame() const { return programs_.frame; }

  /// Runs the batch through all layers, writing K and V of its tokens. Returns logits(batch, 0). Asynchronous where the backend is.
  Tensor forward(const ForwardBatch& batch);
  /// Logits of rows [first_row, first_row + n) of the batch that forward() was last called with: [n,
  /// vocab_size] f32, where n is what is left of its rows, logit_slice at the most. Valid until the next call.
  Tensor logits(const ForwardBatch& batch, int32_t first_row);

 private:
  /// Rotary angles, scales of queries, ones: computed once.
  DecoderMemory make_constants(const KvCache& kv, const RecurrentStatePool& states);
  Buffer upload(const std::vector<float>& values, std::string_view what);
  Program& program_of(const ForwardBatch& batch) { return programs_.variants[batch.num_tokens > 1 ? 1 : 0]; }

  ModelConfig config_;
  ModelWeights weights_;
  Backend& backend_;
  DecoderLimits limits_;
  std::vector<Buffer> constants_;
  DecoderPrograms programs_;
  Buffer values_;
};

}  // namespace minfer
