#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention_window.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

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

/// Blocks that a multiprocessor holds: of heads beyond 256 the ring of one takes its shared memory.
constexpr int32_t decode_blocks_per_sm(int32_t head_size) {
  return head_size <= 256 ? 2 : 1;
}

/// How layers of one kind are divided: chunks in front of their window are in no unit.
struct DecodePlan {
  AttentionKind kind = {};
  DecodeUnits per_kv_head = {};
  int32_t units = 1;       ///< of a sequence
  int32_t num_shares = 0;  ///< thread blocks
};

/// One plan for each kind of layers, all made by one launch.
struct DecodePlans {
  int32_t count = 0;
  DecodePlan plans[kMaxAttentionKinds] = {};

  /// `heads`: query heads. Throws Error if they are too many, or none can be such a window.
  static DecodePlans of(std::span<const AttentionKind> kinds, int32_t heads, int32_t num_sms);
  /// The index of a kind's; throws Error if it has none.
  int32_t find(const AttentionKind& kind) const;

  int32_t most_shares() const;
  int32_t most_units() const;
};

/// Writes shares [plans, plans.most_shares()], of each plan as many as it has. Reads batch.context_len of the decoding sequences
/// on the device.
void plan_decode(Launch& launch, const ForwardBatch& batch, const DecodePlans& plans, DecodeShare* shares);

}  // namespace minfer::cuda
