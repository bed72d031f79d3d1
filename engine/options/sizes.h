#pragma once

#include <cstdint>
#include <string>

#include "engine/options/engine_options.h"
#include "models/decoder/config/config.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// Throws Error unless every option is in its range.
void check_options(const EngineOptions& options, const ModelConfig& config);

/// Tokens of prompt and output together that a sequence may have.
int32_t longest_sequence(const EngineOptions& options, const ModelConfig& config);

/// Blocks that hold so many tokens.
int64_t blocks_for(int64_t tokens, int32_t block_size);

/// Of the chosen layout of the KV cache.
KvBlockSizes kv_block_sizes(const EngineOptions& options);

/// Tokens of a sequence that steps under way compute at the most.
int64_t most_tokens_under_way(const EngineOptions& options);

/// Tokens that the KV cache holds of sequences as long as they may be.
int64_t kv_cache_tokens(const EngineOptions& options);

/// The type of the KV cache: the one asked for, or that of activations. Throws Error if it is not offered, as no type is that attention
/// reads slowly for its bytes, but for f32 beside activations in f32.
DType choose_kv_dtype(const EngineOptions& options, const ModelConfig& config, const BackendInfo& backend);

/// That of a model for which no other was asked.
KvLayout usual_kv_layout(const EngineOptions& options, const ModelConfig& config);

/// Sets what depends on model and backend: threads, steps ahead, type and layout of the KV cache, slots of states. Where prefixes cannot be
/// found (states without pieces of prompts, which end where copies of states are made), prefix caching is off.
void choose_for_backend(EngineOptions& options, const ModelConfig& config, const BackendInfo& backend);

/// Memory for what the prefix cache keeps.
struct CacheRoom {
  int64_t cache_bytes = 0;   ///< of KV blocks and copies of states, where no number of blocks is asked for
  int64_t memory_bytes = 0;  ///< that there is for them at all
};

/// Sets num_state_copies where it is not: of a model with states a quarter of the cache's memory, but no more than the cache's tokens can
/// use; with none at all prefix caching is off. Throws Error if those that were asked for do not fit, with the number that would.
void choose_state_copies(EngineOptions& options, const ModelConfig& config, const CacheRoom& room);
/// To what all ranks have room for.
void limit_state_copies(EngineOptions& options, int64_t most);
/// Throws Error if drafts are wanted of a model with states, and there are no copies of these.
void check_state_before_drafts(const EngineOptions& options, const ModelConfig& config);
int64_t state_copy_bytes(const EngineOptions& options, const ModelConfig& config);

/// Sets num_blocks, at most `most_blocks` unless it is set already, and max_model_len. Throws Error if that does not fit.
void choose_kv_blocks(EngineOptions& options, const ModelConfig& config, int64_t most_blocks);

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
