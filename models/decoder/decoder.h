#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "models/decoder/emit/emitter.h"

namespace minfer {

/// The largest step that a decoder must run; these limits set the size of its workspace, once.
struct DecoderLimits {
  int32_t max_tokens = 0;     ///< tokens of a step; any number of them may need logits
  int32_t logit_slice = 0;    ///< rows of logits computed at a time
  int32_t max_positions = 0;  ///< longest sequence
  int32_t max_sequences = 0;  ///< of a step; needed for a model with a layer for drafts
};

/// The programs of steps of one kind, for one token and for several, and where their values lie.
struct StepPrograms {
  std::array<Program, 2> variants;
  Arena arena;
};

/// The programs of a model's steps on a backend.
struct DecoderPrograms {
  /// `memory` empty: the programs only tell what they need.
  DecoderPrograms(const ModelConfig& config, const ModelWeights& weights, const DecoderMemory& memory,
                  const Target& target, const DecoderLimits& limits);

  FrameOps frame;
  StepPrograms steps;
  StepPrograms drafts;  ///< of the layer for drafts, with op ids of their own; empty without one

  /// Every op of a step in order, including the sampler's; an OpId is an index into it. The types are for several tokens: x of one token is
  /// too small to matter.
  const std::vector<OpInfo>& table() const { return steps.variants[1].table; }
  /// Bytes for the values of any step: steps run one after the other.
  size_t value_bytes() const { return std::max(steps.arena.bytes, drafts.arena.bytes); }
  /// The largest number of op runs in a step: the ops of the head and the sampler run once for each slice of logits.
  size_t max_op_runs(const DecoderLimits& limits) const;
};

/// The limits for a backend's prepare() for such a decoder.
StepLimits step_limits(const ModelConfig& config, const DecoderPrograms& programs,
                       const DecoderLimits& limits, int32_t max_sequences, int32_t max_blocks);
/// The bytes of backend memory that a decoder allocates.
int64_t workspace_bytes(const ModelConfig& config, const DecoderPrograms& programs,
                        const DecoderLimits& limits);

/// Runs a model's program (models/decoder/emit/) on a backend; it works for all families. The engine owns it and calls it from its thread.
/// Holds references: backend, KV cache and states must outlive it.
class Decoder {
 public:
  Decoder(const ModelConfig& config, ModelWeights weights, Backend& backend, const KvCache& kv,
          const RecurrentStatePool& states, const DecoderLimits& limits);

  const std::vector<OpInfo>& ops() const { return programs_.table(); }
  size_t max_op_runs() const { return programs_.max_op_runs(limits_); }
  const FrameOps& frame() const { return programs_.frame; }

  /// Runs the batch through all layers and writes K and V of its tokens. Returns logits(batch, 0). Asynchronous if the backend is.
  /// `drafts`: only through the layer for drafts, for one token of each sequence, whose position follows the last that was computed.
  Tensor forward(const ForwardBatch& batch, bool drafts = false);
  /// Logits of rows [first_row, first_row + n) of the batch of the last forward() call: [n,
  /// vocab_size] f32, where n is the number of remaining rows, at most logit_slice. Valid until the next call.
  Tensor logits(const ForwardBatch& batch, int32_t first_row, bool drafts = false);

 private:
  /// Computes rotary angles, scales of queries and ones, once.
  DecoderMemory make_constants(const KvCache& kv, const RecurrentStatePool& states);
  Buffer upload(const std::vector<float>& values, std::string_view what);
  Program& program_of(const ForwardBatch& batch, bool drafts) {
    return (drafts ? programs_.drafts : programs_.steps).variants[batch.num_tokens > 1 ? 1 : 0];
  }

  ModelConfig config_;
  ModelWeights weights_;
  Backend& backend_;
  DecoderLimits limits_;
  std::vector<Buffer> constants_;
  DecoderPrograms programs_;
  Buffer values_;
};

}  // namespace minfer
