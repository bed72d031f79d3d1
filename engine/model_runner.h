#pragma once

#include <memory>
#include <span>

#include "engine/engine_options.h"
#include "models/decoder/decoder.h"

namespace minfer {

/// Logits in host memory: [rows, vocab_size].
struct LogitRows {
  std::span<const float> values;
  int64_t vocab_size = 0;
};

/// The backend that options and model ask for.
std::unique_ptr<Backend> make_backend(const EngineOptions& options, const ModelSource& source);
/// The type of the KV cache: the one asked for, or that of activations. Throws Error if the backend has no
/// such cache.
DType choose_kv_dtype(const EngineOptions& options, const BackendInfo& backend);

/// A model made ready to run: its weights on a backend, KV memory, and the decoder over both. Options of 0
/// are chosen here. Everything is allocated in the constructor: weights, the ops' workspace, activations,
/// then KV blocks from what is left. Built by Engine and by Evaluator; used from one thread.
class ModelRunner {
 public:
  /// `source` outlives the runner. `logit_slice`: rows of logits that are computed at a time. `backend` null: the one that options and model ask for. Throws Error if an
  /// option does not fit the model or the machine.
  ModelRunner(const ModelSource& source, const EngineOptions& options, int32_t logit_slice,
              const LoadProgress& progress = {}, std::unique_ptr<Backend> backend = nullptr);

  const EngineOptions& options() const { return options_; }  ///< all sizes chosen
  Backend& backend() { return *backend_; }
  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }
  const KvCache& kv() const { return *kv_; }
  int64_t streamed_weight_bytes() const { return streamed_weight_bytes_; }

  /// Runs a step that draws nothing, of at most `logit_slice` rows of logits, and waits for it. `batch` is in
  /// host memory. Valid until the next call.
  LogitRows logits(const ForwardBatch& batch);

 private:
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  int64_t streamed_weight_bytes_ = 0;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Decoder> decoder_;
  std::vector<float> host_logits_;
};

}  // namespace minfer
