#pragma once

#include <cstdint>

#include "models/decoder/config/config.h"

namespace minfer {

/// How layers share the blocks of the KV cache.
///
/// With one table, a block holds equal numbers of tokens of every layer. If some layers read everything and others have windows, each of
/// the two kinds has its own block table. Both take their blocks from one pool. A block has the same bytes for either kind,
/// so the pool needs no division between them. The memory is num_arrays() arrays; a block has equal bytes in each
/// array. These are `parts` parts of layers that read everything, or `window_parts` of layers with windows. A part
/// holds `block_size` tokens of one layer; kernels call it a block.
///
///   of layers that read everything   each has an array: parts * block_size tokens
///   of layers with windows           `window_parts` of them share an array: block_size tokens
///
/// Both numbers are equal unless a token takes other bytes in layers with windows. If such bytes differ among layers of one kind, or among
/// the layers of a single table, each of these layers has an array of its own size.
struct KvLayout {
  int32_t parts = 1;
  int32_t window_parts = 1;
  /// The largest window of layers that free the blocks behind it; 0: no blocks are freed.
  int32_t window = 0;
  bool has_window_table =
      false;  ///< layers with windows have their own table; else there is one table for all layers

  /// The layout with the least memory for a sequence of `max_positions` tokens. A second table must save a tenth, since prefixes are
  /// then found in larger pieces.
  static KvLayout of(const ModelConfig& config, int32_t max_positions, int32_t block_size);

  /// True if blocks of the windows' table hold the layer's keys and values.
  bool is_windowed(const LayerConfig& layer) const {
    return has_window_table && layer.window && layer.window.keys <= window;
  }
  int32_t num_arrays(const ModelConfig& config) const;
  /// A layer that reads everything.
  int32_t full_layer(const ModelConfig& config) const;
  bool operator==(const KvLayout&) const = default;
};

/// The tokens that blocks hold, and the blocks that sequences need.
struct KvBlockSizes {
  int32_t block_size = 0;  ///< tokens of a block, for layers that read everything or for all
  int32_t window_block_size =
      0;  ///< tokens of a block of layers with windows; 0: these have no table of their own
  /// The most tokens of a sequence that blocks of layers with windows hold: the window, and the tokens of running steps.
  int64_t most_window_tokens = 0;

  /// The most blocks that a sequence of `num_tokens` tokens holds.
  int64_t blocks_for(int64_t num_tokens) const;
  /// The most tokens of a single sequence that fit in `num_blocks` blocks.
  int64_t most_tokens(int64_t num_blocks) const;
};

}  // namespace minfer
