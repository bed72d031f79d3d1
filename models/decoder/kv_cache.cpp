#include "models/decoder/kv_cache.h"

namespace minfer {
namespace {

/// K or V of one layer for one block.
size_t half_layer_block_bytes(const ModelConfig& config, DType dtype, int32_t block_size) {
  return row_bytes(dtype, int64_t{config.kv_size()} * block_size);
}

/// Of latent attention keys alone: values are part of them.
size_t halves(const ModelConfig& config) {
  return config.is_latent() ? 1 : 2;
}

}  // namespace

size_t KvCache::block_bytes(const ModelConfig& config, DType dtype, int32_t block_size) {
  return halves(config) * static_cast<size_t>(config.num_layers) *
         half_layer_block_bytes(config, dtype, block_size);
}

KvCache::KvCache(Backend& backend, const ModelConfig& config, DType dtype, int32_t num_blocks,
                 int32_t block_size)
    : num_blocks_(num_blocks),
      block_size_(block_size),
      memory_(backend.allocate(block_bytes(config, dtype, block_size) * static_cast<size_t>(num_blocks),
                               "KV cache")) {
  const size_t half = half_layer_block_bytes(config, dtype, block_size) * static_cast<size_t>(num_blocks);
  auto* next = static_cast<std::byte*>(memory_.data());
  for (int32_t i = 0; i < config.num_layers; ++i, next += halves(config) * half) {
    layers_.push_back({.k = next,
                       .v = config.is_latent() ? next : next + half,
                       .dtype = dtype,
                       .num_blocks = num_blocks,
                       .block_size = block_size,
                       .kv_heads = config.num_kv_heads,
                       .head_size = config.head_size,
                       .v_head_size = config.is_latent() ? config.latent.kv_rank : config.head_size,
                       .v_in_k = config.is_latent()});
  }
}

}  // namespace minfer
