#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"
#include "models/decoder/config/config.h"
#include "models/decoder/memory/kv_layout.h"

namespace minfer {

/// Arrays of like layers, one behind the other: the bytes of block b in array i are at base + i * pitch + b * bytes.
struct KvArrays {
  std::byte* base = nullptr;
  size_t bytes = 0;
  size_t count = 0;
  size_t pitch = 0;
};

/// The paged KV memory of all layers, allocated once. The block manager decides which sequence owns which block.
class KvCache {
 public:
  /// `block_size`: tokens of a part (KvLayout); a part is a block of a layer.
  KvCache(Backend& backend, const ModelConfig& config, const KvLayout& layout, DType dtype,
          int32_t num_blocks, int32_t block_size);

  /// Null pointers for a layer without keys.
  const KvLayer& layer(int32_t index) const { return layers_[static_cast<size_t>(index)]; }
  /// The layer's keys of the indexer, in the same blocks; null pointers for a layer without an indexer.
  const KvLayer& indexer_layer(int32_t index) const { return indexer_layers_[static_cast<size_t>(index)]; }
  const KvLayout& layout() const { return layout_; }
  /// The memory of all layers, where they share a table.
  std::span<const KvArrays> arrays() const { return arrays_; }
  int32_t num_blocks() const { return num_blocks_; }
  int32_t block_size() const { return block_size_; }
  size_t bytes() const { return memory_.bytes(); }

  /// The bytes of a block: K and V, or latent rows and keys of indexers, of all layers that share it.
  static size_t block_bytes(const ModelConfig& config, const KvLayout& layout, DType dtype,
                            int32_t block_size);
  /// The bytes that a sequence of `num_tokens` tokens holds while it decodes.
  static size_t sequence_bytes(const ModelConfig& config, const KvLayout& layout, DType dtype,
                               int32_t block_size, int32_t num_tokens);

 private:
  /// Adds `count` arrays for a layer to arrays().
  void add_arrays(const KvArrays& arrays);

  KvLayout layout_;
  int32_t num_blocks_;
  int32_t block_size_;
  Buffer memory_;
  std::vector<KvLayer> layers_, indexer_layers_;
  std::vector<KvArrays> arrays_;
};

}  // namespace minfer
