#pragma once

#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/device/fp8_group.cuh"
#include "kernels/cuda/device/vector8.cuh"
#include "kernels/cuda/device/warp.cuh"

namespace minfer::cuda {

/// The rows of a block of the prefill kernels: query tokens of one sequence, each with all query heads of one
/// KV head. Row r is head r % group of token r / group.
struct QueryTile {
  int32_t sequence;
  int32_t first_token;     ///< row of qkv
  int32_t tokens;          ///< 0: no tile
  int32_t first_position;  ///< in the sequence
  int32_t kv_head;

  __device__ int32_t rows(const PrefillParams& p) const { return tokens * p.group; }
  /// Keys that the last token reads.
  __device__ int32_t keys() const { return first_position + tokens; }
  /// Element of qkv or out [tokens, stride] at which a row's head begins.
  __device__ int64_t head_of_row(const PrefillParams& p, int row, int64_t stride, int head_size) const {
    const int32_t head = kv_head * p.group + row % p.group;
    return (first_token + row / p.group) * stride + int64_t{head} * head_size;
  }
  /// Stores eight elements of a row's head from shared memory, where they are bf16. By a whole warp, whose lanes have pieces that follow
  /// one another.
  template <int kHead>
  __device__ void store_piece(const PrefillParams& p, int row, int piece, const char* from) const {
    const bool valid = row < rows(p);
    if constexpr (kHead == kFp8Columns) {
      if (p.fp8_out.codes != nullptr) {
        const Vector8 values = load8(reinterpret_cast<const __nv_bfloat16*>(from));
        const float(&v)[8] = values.at;
        const int32_t head = kv_head * p.group + row % p.group;
        return store_fp8(p.fp8_out, first_token + row / p.group, head * kHead + piece * 8,
                         make_float4(v[0], v[1], v[2], v[3]), make_float4(v[4], v[5], v[6], v[7]), valid);
      }
    }
    if (!valid) return;
    auto* to = static_cast<__nv_bfloat16*>(p.out) + head_of_row(p, row, p.out_stride, kHead) + piece * 8;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
  }
};

/// The tile of this block, counted sequence by sequence through the range; by whole warps. Reads the step's
/// inputs only.
__device__ inline QueryTile find_query_tile(const PrefillParams& p) {
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t kv_head = block % p.cache.kv_heads;
  int32_t index = p.max_tiles - 1 - block / p.cache.kv_heads;  // the last ones first
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int32_t first = 0; first < p.num_sequences; first += 32) {
    const int32_t sequence = p.first_sequence + first + lane;
    int32_t begin = 0, queries = 0;
    if (first + lane < p.num_sequences) {
      begin = p.query_start[sequence];
      queries = p.query_start[sequence + 1] - begin;
    }
    const int32_t tiles = (queries + p.tokens_per_tile - 1) / p.tokens_per_tile;
    const int32_t through = warp_sum_up_to(tiles);
    const unsigned beyond = __ballot_sync(~0u, through > index);
    if (beyond == 0) {
      index -= __shfl_sync(~0u, through, 31);
      continue;
    }
    const int owner = __ffs(static_cast<int>(beyond)) - 1;
    const int32_t token = (index - __shfl_sync(~0u, through - tiles, owner)) * p.tokens_per_tile;
    begin = __shfl_sync(~0u, begin, owner);
    queries = __shfl_sync(~0u, queries, owner);
    const int32_t found = p.first_sequence + first + owner;
    return {found, begin + token, min(p.tokens_per_tile, queries - token),
            p.context_len[found] - queries + token, kv_head};
  }
  return {};
}

}  // namespace minfer::cuda
