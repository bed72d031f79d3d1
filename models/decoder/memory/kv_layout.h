#pragma once

#include <cstdint>

#include "models/decoder/config/config.h"

namespace minfer {

/// How layers share the blocks of the KV cache.
///
/// One table: a block holds as many tokens of every layer. Where some layers read everything and others have windows, each of the two
/// kinds has a block table of its own, and both take their blocks from one pool: a block has the same bytes whichever kind it serves,
/// so that nothing has to be divided between them. The memory is num_arrays() arrays, of each of
/// which a block has as many bytes; they are `parts` parts of layers that read everything, or `window_parts` of layers with windows. A part
/// holds `block_size` tokens of one layer, and is what kernels know as a block.
///
///   of layers that read everything   each has an array: parts * block_size tokens
///   of layers with windows           `window_parts` of them share an array: block_size tokens
///
/// Both numbers are the same unless a token takes other bytes in layers with windows. Layers of one kind that differ in that, and any that
/// differ in one table, have an array of their size each.
struct KvLayout {
  int32_t parts = 1;
  int32_t window_parts = 1;
  /// The largest window of the layers whose blocks are given back behind it; 0: none are.
  int32_t window = 0;
  bool has_window_table =
      false;  ///< layers with windows have a table of their own; else there is one, for all layers

  /// The one that takes the least memory for a sequence of `max_positions` tokens. A second table has to save a tenth: prefixes are
  /// found in larger pieces.
  static KvLayout of(const ModelConfig& config, int32_t max_positions, int32_t block_size);

  /// Whether blocks of the table of windows hold the layer's keys and values.
  bool is_windowed(const LayerConfig& layer) const {
    return has_window_table && layer.window && layer.window.keys <= window;
  }
  int32_t num_arrays(const ModelConfig& config) const;
  /// A layer that reads everything.
  int32_t full_layer(const ModelConfig& config) const;
  bool operator==(const KvLayout&) const = default;
};

/// Tokens that blocks hold, and blocks that sequences need.
struct KvBlockSizes {
  int32_t block_size = 0;  ///< tokens of a block, of layers that read everything or of all
  int32_t window_block_size =
      0;  ///< tokens of a block of layers with windows; 0: these have no table of their own
  /// Newest tokens of a sequence that blocks of layers with windows hold at the most: the window, and what steps under way compute.
  int64_t most_window_tokens = 0;

  /// Blocks that a sequence of so many tokens holds at the most.
  int64_t blocks_for(int64_t num_tokens) const;
  /// Tokens that a sequence alone can have in so many blocks.
  int64_t most_tokens(int64_t num_blocks) const;
};

}  // namespace minfer
