#include "models/decoder/kv_cache.h"

namespace minfer {
namespace {

/// K or V of one layer for one part.
size_t half_part_bytes(const ModelConfig& config, DType dtype, int32_t block_size) {
  return row_bytes(dtype, int64_t{config.kv_size()} * block_size);
}

/// Of latent attention keys alone: values are part of them.
size_t halves(const ModelConfig& config) {
  return config.is_latent() ? 1 : 2;
}

}  // namespace

size_t KvCache::block_bytes(const ModelConfig& config, const KvLayout& layout, DType dtype,
                            int32_t block_size) {
  const auto parts = static_cast<size_t>(layout.num_arrays(config)) * static_cast<size_t>(layout.parts);
  return halves(config) * parts * half_part_bytes(config, dtype, block_size);
}

size_t KvCache::sequence_bytes(const ModelConfig& config, const KvLayout& layout, DType dtype,
                               int32_t block_size, int32_t num_tokens) {
  const KvBlockSizes sizes{.block_size = layout.parts * block_size,
                           .window_block_size = layout.has_window_table ? block_size : 0,
                           .most_window_tokens = layout.window};
  return static_cast<size_t>(sizes.blocks_for(num_tokens)) * block_bytes(config, layout, dtype, block_size);
}

KvCache::KvCache(Backend& backend, const ModelConfig& config, const KvLayout& layout, DType dtype,
                 int32_t num_blocks, int32_t block_size)
    : layout_(layout),
      num_blocks_(num_blocks),
      block_size_(block_size),
      memory_(backend.allocate(
          block_bytes(config, layout, dtype, block_size) * static_cast<size_t>(num_blocks), "KV cache")) {
  const size_t part_bytes = half_part_bytes(config, dtype, block_size);
  const int32_t num_parts = num_blocks * layout.parts;
  const size_t half = part_bytes * static_cast<size_t>(num_parts);
  int32_t num_full = 0, num_windowed = 0;
  for (const LayerConfig& layer : config.layers) {
    const bool is_windowed = layout.is_windowed(layer);
    const int32_t array = is_windowed ? num_windowed / layout.parts : num_full;
    const int32_t part = is_windowed ? num_windowed % layout.parts : 0;
    ++(is_windowed ? num_windowed : num_full);
    auto* const k = static_cast<std::byte*>(memory_.data()) +
                    static_cast<size_t>(array) * halves(config) * half +
                    static_cast<size_t>(part) * part_bytes;
    layers_.push_back({.k = k,
                       .v = config.is_latent() ? k : k + half,
                       .dtype = dtype,
                       .num_blocks = num_parts - part,
                       .block_size = block_size,
                       .kv_heads = config.num_kv_heads,
                       .head_size = config.head_size,
                       .v_head_size = config.is_latent() ? config.latent.kv_rank : config.head_size,
                       .v_in_k = config.is_latent()});
  }
}

}  // namespace minfer
