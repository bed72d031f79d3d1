#include "models/decoder/memory/kv_layout.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace minfer {
namespace {

int64_t pieces(int64_t whole, int64_t piece) {
  return (whole + piece - 1) / piece;
}

/// Layers that read everything, or those with windows.
struct LayerKind {
  int32_t count = 0;
  int32_t kv_size = 0;  ///< of each; 0: they differ

  void add(int32_t size) {
    kv_size = count == 0 || size == kv_size ? size : 0;
    ++count;
  }
};

struct LayerKinds {
  LayerKind full, windowed;
};

/// The memory of a sequence of `num_tokens` tokens while it decodes, in elements of K per token of a part.
int64_t elements_taken(const KvLayout& layout, const LayerKinds& layers, int32_t num_tokens,
                       int32_t block_size) {
  const int64_t arrays =
      std::max<int64_t>(layers.full.count, pieces(layers.windowed.count, layout.window_parts));
  const KvBlockSizes sizes{layout.parts * block_size, block_size, layout.window};
  return sizes.blocks_for(num_tokens) * arrays * layout.parts * layers.full.kv_size;
}

}  // namespace

KvLayout KvLayout::of(const ModelConfig& config, int32_t max_positions, int32_t block_size) {
  LayerKinds layers;
  KvLayout one;
  int64_t elements = 0;
  for (int32_t i = 0; i < config.num_all_layers(); ++i) {
    if (config.shares_kv(i)) continue;
    const AttentionWindow window = config.layer(i).window;
    const bool is_windowed = window && window.keys < max_positions;
    (is_windowed ? layers.windowed : layers.full).add(config.kv_size(i));
    elements += config.kv_size(i);
    if (is_windowed) one.window = std::max(one.window, window.keys);
  }
  if (layers.windowed.count == 0 || layers.full.count == 0) return one;
  KvLayout two{.window = std::exchange(one.window, 0), .has_window_table = true};
  if (layers.windowed.kv_size == 0 || layers.full.kv_size == 0) return one;
  KvLayout best = one;
  int64_t fewest = pieces(max_positions, block_size) * elements * 9 / 10;
  const int32_t common = std::gcd(layers.full.kv_size, layers.windowed.kv_size);
  const int64_t most_shared = pieces(layers.windowed.count, layers.full.count);
  for (int32_t times = 1; two.window_parts < most_shared || times == 1; ++times) {
    two.parts = times * (layers.windowed.kv_size / common);
    two.window_parts = times * (layers.full.kv_size / common);
    const int64_t taken = elements_taken(two, layers, max_positions, block_size);
    if (taken >= fewest) continue;
    fewest = taken;
    best = two;
  }
  return best;
}

int32_t KvLayout::num_arrays(const ModelConfig& config) const {
  int32_t full = 0, windowed = 0;
  for (const LayerConfig& layer : config.layers)
    if (layer.kv_of == LayerConfig::kOwn) ++(is_windowed(layer) ? windowed : full);
  return std::max(full, static_cast<int32_t>(pieces(windowed, window_parts)));
}

int32_t KvLayout::full_layer(const ModelConfig& config) const {
  int32_t layer = 0;
  while (layer + 1 < config.num_layers && is_windowed(config.layer(layer)))
    ++layer;
  return layer;
}

int64_t KvBlockSizes::blocks_for(int64_t num_tokens) const {
  const int64_t blocks = pieces(num_tokens, block_size);
  if (window_block_size == 0) return blocks;
  const int64_t all = pieces(num_tokens, window_block_size);
  // Wherever the window begins in its first block.
  return blocks + std::min(all, pieces(most_window_tokens, window_block_size) + 1);
}

int64_t KvBlockSizes::most_tokens(int64_t num_blocks) const {
  int64_t fits = 0, too_many = num_blocks * block_size + 1;
  while (too_many - fits > 1) {
    const int64_t tokens = fits + (too_many - fits) / 2;
    (blocks_for(tokens) <= num_blocks ? fits : too_many) = tokens;
  }
  return fits;
}

}  // namespace minfer
