#pragma once

#include <cstdint>
#include <string>

#include "engine/options/engine_options.h"
#include "models/decoder/config/config.h"
#include "models/decoder/weights/model_source.h"

namespace minfer {

/// Throws Error unless every option is in its range.
void check_options(const EngineOptions& options, const ModelConfig& config);

/// The most tokens, of prompt and output together, that a sequence may have.
int32_t longest_sequence(const EngineOptions& options, const ModelConfig& config);

/// The bytes of a KV block and of a slot of states.
int64_t kv_block_bytes(const ModelConfig& config, const EngineOptions& options, DType dtype);
int64_t state_slot_bytes(const ModelConfig& config);

/// The number of blocks that hold `tokens` tokens.
int64_t blocks_for(int64_t tokens, int32_t block_size);

/// Block sizes of the chosen layout of the KV cache.
KvBlockSizes kv_block_sizes(const EngineOptions& options);

/// The most tokens of a sequence that steps under way compute.
int64_t most_tokens_under_way(const EngineOptions& options);

/// Tokens that the KV cache holds if each sequence is as long as it may be.
int64_t kv_cache_tokens(const EngineOptions& options);

/// The type of the KV cache: the type asked for, else the activations' type. Throws Error if it is not offered.
/// A type that attention reads slowly for its bytes is not offered, except f32 beside activations in f32.
DType choose_kv_dtype(const EngineOptions& options, const ModelConfig& config, const BackendInfo& backend);

/// The layout of a model for which no layout was asked for.
KvLayout usual_kv_layout(const EngineOptions& options, const ModelConfig& config);

/// Sets what depends on model and backend: threads, steps ahead, type and layout of the KV cache, slots of states. Turns prefix
/// caching off where prefixes cannot be found (states without pieces of prompts, which end where copies of states are made).
void choose_for_backend(EngineOptions& options, const ModelConfig& config, const BackendInfo& backend);

/// Memory for the contents of the prefix cache.
struct CacheRoom {
  int64_t cache_bytes = 0;   ///< for KV blocks and copies of states, if no number of blocks is asked for
  int64_t memory_bytes = 0;  ///< all memory that they can have
};

/// Sets num_state_copies if it is not set: for a model with states, a quarter of the cache's memory, but no more than the cache's tokens
/// can use. With no copies, prefix caching is off. Throws Error if the copies asked for do not fit; it names the number that would.
void choose_state_copies(EngineOptions& options, const ModelConfig& config, const CacheRoom& room);
/// Sets num_state_copies to `most`, which all ranks have room for; 0 turns prefix caching off.
void limit_state_copies(EngineOptions& options, int64_t most);
/// For a model with states without copies of them: throws Error if drafts are asked for, else turns them off.
void settle_state_before_drafts(EngineOptions& options, const ModelConfig& config);

/// Sets num_blocks, unless it is set already, to at most `most_blocks`, and max_model_len. Throws Error if these do not fit.
void choose_kv_blocks(EngineOptions& options, const ModelConfig& config, int64_t most_blocks);

/// Memory of each GPU that shares a model.
struct MemoryRoom {
  int64_t usable_bytes = 0;  ///< for weights, KV cache and other_bytes
  int64_t other_bytes = 0;   ///< activations and CUDA graphs
};

/// Bytes that the weights take on a GPU as `options` has them loaded.
int64_t gpu_weight_bytes(const ModelSource& source, const EngineOptions& options);

/// For a model that does not fit: options and values that would fit, as a sentence. It tries these one by one, on as many GPUs as
/// there are: the KV cache in FP8, FP8 weights, both, a shorter max-model-len, the largest type of weights that a file could have;
/// then, with the options as they are, the fewest GPUs. `source`: the share of one of options.tensor_parallel_size GPUs. The KV
/// cache must have room for one sequence of max_model_len, or for a block if that is 0, or for num_blocks. Reads sizes alone.
std::string what_would_fit(const ModelSource& source, const EngineOptions& options, const MemoryRoom& room);

}  // namespace minfer
