#include "models/decoder/kv_layout.h"

#include <algorithm>
#include <utility>

namespace minfer {
namespace {

int64_t pieces(int64_t whole, int64_t piece) {
  return (whole + piece - 1) / piece;
}

struct LayerCounts {
  int32_t full = 0, windowed = 0;
};

/// Parts that a sequence of so many tokens takes while it decodes.
int64_t parts_taken(const KvLayout& layout, const LayerCounts& layers, int32_t num_tokens,
                    int32_t block_size) {
  const int64_t arrays = std::max<int64_t>(layers.full, pieces(layers.windowed, layout.parts));
  const KvBlockSizes sizes{layout.parts * block_size, block_size, layout.window};
  return sizes.blocks_for(num_tokens) * arrays * layout.parts;
}

}  // namespace

KvLayout KvLayout::of(const ModelConfig& config, int32_t max_positions, int32_t block_size) {
  LayerCounts layers;
  KvLayout one, best;
  for (const LayerConfig& layer : config.layers) {
    const bool is_windowed = layer.window && layer.window.keys < max_positions;
    ++(is_windowed ? layers.windowed : layers.full);
    if (is_windowed) one.window = std::max(one.window, layer.window.keys);
  }
  if (layers.windowed == 0 || layers.full == 0) return one;
  KvLayout two{.parts = 1, .window = std::exchange(one.window, 0), .has_window_table = true};
  if (!config.has_like_heads()) return one;
  best = one;
  int64_t fewest = pieces(max_positions, block_size) * config.num_layers * 9 / 10;
  const auto most_parts = static_cast<int32_t>(pieces(layers.windowed, layers.full));
  for (; two.parts <= most_parts; ++two.parts) {
    const int64_t taken = parts_taken(two, layers, max_positions, block_size);
    if (taken >= fewest) continue;
    fewest = taken;
    best = two;
  }
  return best;
}

int32_t KvLayout::num_arrays(const ModelConfig& config) const {
  const auto windowed = static_cast<int32_t>(
      std::ranges::count_if(config.layers, [this](const LayerConfig& layer) { return is_windowed(layer); }));
  return std::max(config.num_layers - windowed, static_cast<int32_t>(pieces(windowed, parts)));
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
