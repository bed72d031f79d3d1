#pragma once

#include <cstdint>

#include "engine/engine_options.h"
#include "models/decoder/config.h"

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

/// The type of the KV cache: the one asked for, or that of activations. Throws Error if the backend has no
/// such cache.
DType choose_kv_dtype(const EngineOptions& options, const BackendInfo& backend);

/// That of a model for which no other was asked.
KvLayout usual_kv_layout(const EngineOptions& options, const ModelConfig& config);

/// Sets what depends on model and backend: threads, steps ahead, type and layout of the KV cache, slots of states. A model that has these
/// finds no prefixes: a block's keys can be used again, the state behind it has been overwritten.
void choose_for_backend(EngineOptions& options, const ModelConfig& config, const BackendInfo& backend);

/// Sets num_blocks, at most `most_blocks` unless it is set already, and max_model_len. Throws Error if that does not fit.
void choose_kv_blocks(EngineOptions& options, const ModelConfig& config, int64_t most_blocks);

}  // namespace minfer
