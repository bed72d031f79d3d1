#pragma once

#include <functional>
#include <memory>

#include "engine/options/engine_options.h"
#include "engine/options/sizes.h"
#include "models/decoder/decoder.h"

namespace minfer {

/// A rank's share of a model, or all of it, made ready to run: its weights on a backend, KV memory, and the decoder
/// over both. It is made in two steps; between them the ranks agree on the number of KV blocks. Everything is
/// allocated here: weights, the ops' workspace, then activations, states of sequences and KV blocks from what is left.
/// If a model does not fit into a GPU's memory, the error says what would fit. Used from one thread.
class RankModel {
 public:
  /// Loads the weights. `options`: those by model and backend are chosen (choose_for_backend()). `source` outlives the model.
  RankModel(const ModelSource& source, const EngineOptions& options, int32_t logit_slice,
            const LoadProgress& progress, std::unique_ptr<Backend> backend);

  /// The number of KV blocks that fit beside `copy_bytes` of copies of states, at least 1. Throws Error as cache_room() does.
  int64_t most_kv_blocks(int64_t copy_bytes = 0) const;
  /// Bytes of the activations that make_decoder() will allocate.
  int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Makes the rest. Chooses the sizes that are not chosen, as all ranks have room for them: `least` is the least of all ranks' values.
  void complete(EngineOptions& options, const std::function<int64_t(int64_t)>& least);
  /// Makes the rest. `options`: all sizes are chosen.
  void make_decoder(const EngineOptions& options);

  Backend& backend() { return *backend_; }
  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }
  const KvCache& kv() const { return *kv_; }
  const RecurrentStatePool& states() const { return *states_; }
  const ModelConfig& config() const { return source_.config(); }

  /// Fills in the ops and passes of `step`, and launches it.
  LaunchedStep launch(StepArgs step, const ForwardPass& forward);
  LaunchedStep launch(const StepArgs& step);

 private:
  /// The backend's memory for the cache, beside all else. Throws Error if there is none.
  CacheRoom cache_room() const;
  /// Bytes of a GPU's memory that all of the model may use.
  int64_t usable_bytes(const DeviceMemory& memory) const;
  /// Bytes left for the cache. Throws Error if there are none, unless its size is given.
  int64_t device_bytes_left(const DeviceMemory& memory) const;
  /// Bytes of the states of all sequences that may run.
  int64_t state_bytes() const;
  /// Bytes of the machine's memory, less the states'. Throws Error if the states do not fit.
  int64_t host_bytes_beside_states() const;
  ModelWeights load(const LoadProgress& progress);

  const ModelSource& source_;
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  int64_t taken_by_others_bytes_ = 0;  ///< GPU memory in use before the weights came
  ModelWeights weights_;               ///< until the decoder has them
  DecoderLimits limits_;
  int64_t workspace_bytes_ = 0;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<RecurrentStatePool> states_;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace minfer
