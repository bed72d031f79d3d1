#include "models/decoder/memory/kv_cache.h"

#include "kernels/base/error.h"

namespace minfer {
namespace {

/// K or V of a layer for one part.
size_t half_part_bytes(const ModelConfig& config, int32_t layer, DType dtype, int32_t block_size) {
  return row_bytes(dtype, int64_t{config.kv_size(layer)} * block_size);
}

/// K and V, or only K for latent attention, whose values are part of the keys.
size_t halves(const ModelConfig& config) {
  return config.is_latent() ? 1 : 2;
}

/// Keys of a layer's indexer for one part; 0: the layer has none.
size_t indexer_part_bytes(const ModelConfig& config, int32_t layer, DType dtype, int32_t block_size) {
  return config.has_indexer(layer) ? row_bytes(dtype, int64_t{config.indexer.key_size} * block_size) : 0;
}

}  // namespace

size_t KvCache::block_bytes(const ModelConfig& config, const KvLayout& layout, DType dtype,
                            int32_t block_size) {
  if (!layout.has_window_table) {  // an array for each layer, of its size
    size_t bytes = 0;
    for (int32_t layer = 0; layer < config.num_all_layers(); ++layer)
      bytes += halves(config) * half_part_bytes(config, layer, dtype, block_size) +
               indexer_part_bytes(config, layer, dtype, block_size);
    return static_cast<size_t>(layout.parts) * bytes;
  }
  const auto parts = static_cast<size_t>(layout.num_arrays(config)) * static_cast<size_t>(layout.parts);
  return halves(config) * parts * half_part_bytes(config, layout.full_layer(config), dtype, block_size);
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
  int32_t num_windowed = 0;
  size_t bytes_of_full = 0;  // arrays of the layers so far that read everything
  const size_t full_bytes = static_cast<size_t>(layout.parts) *
                            half_part_bytes(config, layout.full_layer(config), dtype, block_size);
  for (int32_t i = 0; i < config.num_all_layers(); ++i) {
    if (!config.attends(i)) {
      layers_.push_back({.dtype = dtype});
      continue;
    }
    if (config.shares_kv(i)) {
      layers_.push_back(layers_[static_cast<size_t>(config.layer(i).kv_of)]);
      continue;
    }
    const LayerHeads heads = config.heads(i);
    const size_t part_bytes = half_part_bytes(config, i, dtype, block_size);
    const bool is_windowed = layout.is_windowed(config.layer(i));
    const int32_t parts = is_windowed ? layout.window_parts : layout.parts;
    if (layout.has_window_table && part_bytes * static_cast<size_t>(parts) != full_bytes) {
      fail("KV cache: {} parts of layer {} have {} bytes a block, expected {}, those of layer {}", parts, i,
           part_bytes * static_cast<size_t>(parts), full_bytes, layout.full_layer(config));
    }
    const int32_t num_parts = num_blocks * parts;
    const size_t half = part_bytes * static_cast<size_t>(num_parts);
    const int32_t part = is_windowed ? num_windowed % parts : 0;
    const size_t array =
        is_windowed ? static_cast<size_t>(num_windowed / parts) * halves(config) * half : bytes_of_full;
    if (is_windowed) {
      ++num_windowed;
    } else {
      bytes_of_full += halves(config) * half;
    }
    auto* const k = static_cast<std::byte*>(memory_.data()) + array + static_cast<size_t>(part) * part_bytes;
    add_arrays({k, part_bytes * static_cast<size_t>(parts), halves(config), half});
    layers_.push_back({.k = k,
                       .v = config.is_latent() ? k : k + half,
                       .dtype = dtype,
                       .num_blocks = num_parts - part,
                       .block_size = block_size,
                       .kv_heads = heads.kv_heads,
                       .head_size = heads.size,
                       .v_head_size = config.value_size(i),
                       .v_in_k = config.is_latent()});
  }
  for (int32_t i = 0; i < config.num_all_layers(); ++i) {
    const size_t bytes = indexer_part_bytes(config, i, dtype, block_size) * static_cast<size_t>(layout.parts);
    auto* const k = static_cast<std::byte*>(memory_.data()) + bytes_of_full;
    indexer_layers_.push_back({.dtype = dtype});
    if (bytes == 0) continue;
    bytes_of_full += bytes * static_cast<size_t>(num_blocks);
    add_arrays({k, bytes, 1, bytes * static_cast<size_t>(num_blocks)});
    indexer_layers_.back() = {.k = k,
                              .v = k,
                              .dtype = dtype,
                              .num_blocks = num_blocks * layout.parts,
                              .block_size = block_size,
                              .kv_heads = 1,
                              .head_size = config.indexer.key_size,
                              .v_in_k = true};
  }
}

void KvCache::add_arrays(const KvArrays& arrays) {
  const bool continues = !arrays_.empty() && arrays_.back().pitch == arrays.pitch;
  if (continues) {
    arrays_.back().count += arrays.count;
  } else {
    arrays_.push_back(arrays);
  }
}

}  // namespace minfer
