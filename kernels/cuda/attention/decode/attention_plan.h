#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention_window.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/forward_batch.h"
#include "kernels/op_args.h"

/// Divides a decode step's attention over a fixed number of thread blocks, for any context lengths: stream-K
/// (Osama et al. 2023). All (sequence, unit, chunk) triples form one line, chunk fastest; each block takes the
/// same number of consecutive triples.
namespace minfer::cuda {

/// The keys of a chunk. Blocks share their work by whole chunks.
inline constexpr int32_t kChunkKeys = 16;
/// The fewest chunks that are worth a block: one for each of its warps.
inline constexpr int32_t kSmallestShare = 4;

/// Chunks of a unit of a sequence.
struct DecodeChunks {
  int32_t skipped;  ///< chunks in front, without a key in the window
  int32_t count;    ///< chunks behind them, at least 1

  static constexpr DecodeChunks of(int32_t context, AttentionWindow window) {
    const int32_t skipped = context > 0 ? window.first_seen(context - 1) / kChunkKeys : 0;
    const int32_t chunks = (context + kChunkKeys - 1) / kChunkKeys - skipped;
    return {skipped, chunks > 1 ? chunks : 1};
  }
};

/// A unit is a KV head and up to eight of its query heads.
struct DecodeUnits {
  int32_t per_kv_head = 1;
  int32_t query_heads = 1;  ///< in a unit; the last unit of a KV head may have fewer

  static DecodeUnits of_group(int32_t group) {
    const int32_t per_kv_head = (group + 7) / 8;
    return {per_kv_head, (group + per_kv_head - 1) / per_kv_head};
  }
};

/// The share of one thread block.
struct DecodeShare {
  int32_t sequence;  ///< the one with the first chunk
  int32_t unit;
  int32_t chunk;   ///< the first chunk's index in its unit
  int32_t chunks;  ///< in each unit of the sequence, at least 1
  int32_t begin;   ///< the first chunk's index in the line of all
  int32_t end;     ///< past the last chunk; the chunks that fill up a unit do not count
  int32_t share;   ///< chunks of every block but the last
  int32_t padding;
};

/// Blocks that a multiprocessor holds: one for heads beyond 256, since its ring takes the shared memory.
constexpr int32_t decode_blocks_per_sm(int32_t head_size) {
  return head_size <= 256 ? 2 : 1;
}

/// How layers of one kind are divided. Chunks in front of their window belong to no unit.
struct DecodePlan {
  AttentionKind kind = {};
  DecodeUnits per_kv_head = {};
  int32_t units = 1;       ///< of a sequence
  int32_t num_shares = 0;  ///< thread blocks
};

/// One plan for each kind of layer. One launch makes them all.
struct DecodePlans {
  int32_t count = 0;
  DecodePlan plans[kMaxAttentionKinds] = {};

  /// `heads`: query heads of kinds that do not say. Throws Error for more than kMaxAttentionKinds kinds, or a window of less than 0 keys.
  static DecodePlans of(std::span<const AttentionKind> kinds, int32_t heads, int32_t num_sms);
  /// The index of the kind's plan; throws Error if there is none.
  int32_t find(const AttentionKind& kind) const;

  int32_t most_shares() const;
  int32_t most_units() const;
};

/// Writes shares [plans, plans.most_shares()], of which each plan uses its num_shares. Reads batch.context_len
/// of the decoding sequences on the device.
void plan_decode(Launch& launch, const ForwardBatch& batch, const DecodePlans& plans, DecodeShare* shares);

}  // namespace minfer::cuda
