#pragma once

#include <cstdint>
#include <string>

#include "engine/engine_options.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// Memory of each GPU that shares a model.
struct MemoryRoom {
  int64_t usable_bytes = 0;  ///< for weights, KV cache and what follows
  int64_t other_bytes = 0;   ///< activations and CUDA graphs
};

/// Bytes that the weights take on a GPU as `options` has them loaded.
int64_t gpu_weight_bytes(const ModelSource& source, const EngineOptions& options);

/// For a model that does not fit: what would, as a sentence of options and their values. Tried one by one, on as many GPUs as there are:
/// the KV cache in FP8, FP8 weights, both, a shorter max-model-len, the largest type of weights that a file could have; then, as things
/// are, the fewest GPUs. `source` is what one of options.tensor_parallel_size GPUs has. The KV cache must have room for one sequence of
/// max_model_len, or a block where that is 0, or for num_blocks. Reads sizes alone.
std::string what_would_fit(const ModelSource& source, const EngineOptions& options, const MemoryRoom& room);

}  // namespace minfer
