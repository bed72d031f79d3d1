#pragma once

#include <memory>

#include "engine/engine_options.h"
#include "models/decoder.h"

namespace minfer {

/// A model made ready to run: its weights on a backend, KV memory, and the decoder over both. Options of 0
/// are chosen here. Built by Engine and by Evaluator; used from one thread.
class ModelRunner {
 public:
  /// `source` outlives the runner. Throws Error if an option does not fit the model or the machine.
  ModelRunner(const ModelSource& source, const EngineOptions& options, int32_t max_logit_rows,
              const LoadProgress& progress = {});

  const EngineOptions& options() const { return options_; }  ///< all sizes chosen
  Backend& backend() { return *backend_; }
  Decoder& decoder() { return *decoder_; }
  const Decoder& decoder() const { return *decoder_; }
  const KvCache& kv() const { return *kv_; }
  int64_t streamed_weight_bytes() const { return streamed_weight_bytes_; }

 private:
  EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  int64_t streamed_weight_bytes_ = 0;
  std::unique_ptr<KvCache> kv_;
  std::unique_ptr<Decoder> decoder_;
};

/// Fills in the options that are 0 from the model's shape and the memory that is free. Throws Error naming an
/// option that is out of range or cannot be met.
EngineOptions choose_options(const EngineOptions& options, const ModelConfig& config,
                             int64_t free_memory_bytes);

}  // namespace minfer
