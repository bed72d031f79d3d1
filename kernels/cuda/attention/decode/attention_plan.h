#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "kernels/attention_window.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/forward_batch.h"

/// How a decode step's attention is divided over a fixed number of thread blocks, whatever its contexts:
/// stream-K (Osama et al. 2023). All (sequence, unit, chunk) triples stand in one line, chunk fastest; each
/// block takes the same number of neighbours.
namespace minfer::cuda {

/// Keys that are divided together.
inline constexpr int32_t kChunkKeys = 16;
/// Fewer chunks are not worth a block: one for each of its warps.
inline constexpr int32_t kSmallestShare = 4;

/// Chunks of a unit of a sequence.
struct DecodeChunks {
  int32_t skipped;  ///< that have no key in the window
  int32_t count;    ///< behind them, at least 1

  static constexpr DecodeChunks of(int32_t context, AttentionWindow window) {
    const int32_t skipped = context > 0 ? window.first_seen(context - 1) / kChunkKeys : 0;
    const int32_t chunks = (context + kChunkKeys - 1) / kChunkKeys - skipped;
    return {skipped, chunks > 1 ? chunks : 1};
  }
};

/// A unit is a KV head and up to eight of its query heads.
struct DecodeUnits {
  int32_t per_kv_head = 1;
  int32_t query_heads = 1;  ///< of a unit; the last one of a KV head may have fewer

  static DecodeUnits of_group(int32_t group) {
    const int32_t per_kv_head = (group + 7) / 8;
    return {per_kv_head, (group + per_kv_head - 1) / per_kv_head};
  }
};

/// The share of one thread block.
struct DecodeShare {
  int32_t sequence;  ///< of the first chunk
  int32_t unit;
  int32_t chunk;   ///< of the unit's
  int32_t chunks;  ///< of each unit of the sequence, at least 1
  int32_t begin;   ///< first chunk in the line of all
  int32_t end;     ///< its last chunk's, without what a unit is filled up with
  int32_t share;   ///< chunks of every block but the last
  int32_t padding;
};

/// The windows of a model's layers, each with a plan of its own: chunks in front of a window are in no unit.
struct DecodeWindows {
  static constexpr int32_t kMost = 4;
  int32_t count = 1;
  AttentionWindow windows[kMost] = {};  ///< the first is none

  /// Throws Error if they are too many, or none can be such a window.
  static DecodeWindows of(std::span<const AttentionWindow> windows);
  /// The index of one; throws Error if it is not among them.
  int32_t find(AttentionWindow window) const;
};

/// Writes shares [windows, num_shares]. Reads batch.context_len of the decoding sequences on the device.
void plan_decode(Launch& launch, const ForwardBatch& batch, int32_t units_per_sequence,
                 const DecodeWindows& windows, DecodeShare* shares, int32_t num_shares);

}  // namespace minfer::cuda
