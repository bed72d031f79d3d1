#pragma once

#include <cstdint>

#include "kernels/op_args.h"

/// The place of a token's K and V in a paged cache [num_blocks, kv_heads, block_size, head_size].
namespace minfer::cuda {

/// The geometry of a cache. Division by a block size that is a power of two is a shift.
struct KvSlots {
  int32_t block_size = 1;
  int32_t block_shift = -1;  ///< log2(block_size), or -1 if it is no power of two
  int32_t kv_heads = 1;
};

inline KvSlots make_kv_slots(const KvLayer& kv) {
  KvSlots slots{kv.block_size, -1, kv.kv_heads};
  for (int32_t shift = 0; shift < 31; ++shift) {
    if (kv.block_size == int32_t{1} << shift) slots.block_shift = shift;
  }
  return slots;
}

#ifdef __CUDACC__

/// A token's block and its offset in the block. `index`: a position in a sequence, or a slot of the cache.
struct BlockOffset {
  int32_t block;
  int32_t offset;
};

__device__ __forceinline__ BlockOffset block_offset(const KvSlots& slots, int32_t index) {
  const int32_t block = slots.block_shift >= 0 ? index >> slots.block_shift : index / slots.block_size;
  return {block, index - block * slots.block_size};
}

/// The number of rows of head_size elements before the row of `kv_head` at `offset` in cache block `block`.
__device__ __forceinline__ int64_t kv_row(const KvSlots& slots, int32_t block, int32_t kv_head,
                                          int32_t offset) {
  return (int64_t{block} * slots.kv_heads + kv_head) * slots.block_size + offset;
}

/// A key of a sequence and its row of the cache. The load of the block number is not waited for: a kernel that
/// looks up keys ahead of their copies calls row() when it copies.
struct KeyRow {
  int32_t block;         ///< -1: there is no such key
  int32_t row_in_block;  ///< among the block's kv_heads * block_size rows

  /// The cache's row, or -1.
  __device__ __forceinline__ int32_t row(const KvSlots& slots) const {
    return block < 0 ? -1 : block * slots.kv_heads * slots.block_size + row_in_block;
  }
};

/// `blocks`: the sequence's; it has keys at positions below `end`. For caches of less than 2^31 rows.
__device__ __forceinline__ KeyRow look_up(const KvSlots& slots, const int32_t* blocks, int32_t kv_head,
                                          int32_t position, int32_t end) {
  const BlockOffset place = block_offset(slots, position);
  KeyRow key{-1, kv_head * slots.block_size + place.offset};
  if (position < end) key.block = __ldcg(blocks + place.block);
  return key;
}

#endif  // __CUDACC__

}  // namespace minfer::cuda
