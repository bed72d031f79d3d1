#pragma once

#include <type_traits>

#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/attention/shared/attention_fragments.cuh"
#include "kernels/cuda/ptx/fp8_group.cuh"
#include "kernels/cuda/ptx/vector8.cuh"
#include "kernels/cuda/ptx/warp.cuh"

namespace minfer::cuda {

/// The rows of a block of the prefill kernels: query tokens of one sequence, each with all query heads of one
/// KV head. Row r is head r % group of token r / group.
struct QueryTile {
  int32_t sequence;
  int32_t first_token;     ///< row of qkv
  int32_t tokens;          ///< 0: no tile
  int32_t first_position;  ///< in the sequence
  int32_t context;         ///< of the sequence
  int32_t kv_head;

  __device__ int32_t rows(const PrefillParams& p) const { return tokens * p.group; }
  /// Keys that the last token reads.
  __device__ int32_t keys() const { return first_position + tokens; }
  /// Element of qkv or out [tokens, stride] at which a row's head begins.
  __device__ int64_t head_of_row(const PrefillParams& p, int row, int64_t stride, int head_size) const {
    const int32_t head = kv_head * p.group + row % p.group;
    return (first_token + row / p.group) * stride + int64_t{head} * head_size;
  }
  /// Stores eight elements of a row's head from shared memory, where they are bf16. A whole warp calls it, with
  /// consecutive pieces in its lanes.
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

/// Puts 16 bytes of a row's dims into a tile of Q, laid out as Rows. For a cache in fp8, a lane's two registers get four consecutive dims.
template <class Rows, bool kForFp8>
__device__ __forceinline__ void store_query_piece(char* tile, int row, int piece, const uint4& dims) {
  if constexpr (kForFp8) {
    const uint32_t pairs[4] = {dims.x, dims.y, dims.z, dims.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int pair = piece % 2 * 4 + i;  // of the 8 of a step
      const int slot = pair % 2 * 4 + pair / 2;
      *reinterpret_cast<uint32_t*>(tile + Rows::offset(row, piece / 2 * 2 + slot / 4) + slot % 4 * 4) =
          pairs[i];
    }
  } else {
    *reinterpret_cast<uint4*>(tile + Rows::offset(row, piece)) = dims;
  }
}

/// All threads of a block bring Q of `tile` to shared memory, as elements of the products with a cache of Kv.
/// Rows beyond the tile's are 0.
template <class Kv, class Element, int kHead, int kRows, int kThreads>
__device__ __forceinline__ void load_query_tile(const PrefillParams& p, const QueryTile& tile, char* to) {
  constexpr int kPieces = kHead * 2 / 16;  // of 16 bytes, in a row
#pragma unroll 4
  for (int i = 0; i < kRows * kPieces / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = at / kPieces, piece = at % kPieces;
    uint4 dims = {0, 0, 0, 0};
    if (row < tile.rows(p)) {
      const auto* from =
          static_cast<const __nv_bfloat16*>(p.qkv) + tile.head_of_row(p, row, p.qkv_stride, kHead);
      dims = *reinterpret_cast<const uint4*>(from + piece * 8);
    }
    if constexpr (!std::is_same_v<Element, __nv_bfloat16>) {
      dims = {from_bf16_pair<Element>(dims.x), from_bf16_pair<Element>(dims.y),
              from_bf16_pair<Element>(dims.z), from_bf16_pair<Element>(dims.w)};
    }
    store_query_piece<SharedRows<kHead * 2>, sizeof(Kv) == 1>(to, row, piece, dims);
  }
}

/// Tiles in the order of their work. The level of a sequence's tile is its index plus the number of times that tokens_per_tile
/// goes into the tokens before the sequence's first in this step. Tiles of a level have nearly the same number of keys.
struct TileLevels {
  int32_t first;
  int32_t count;  ///< of levels, one tile each

  /// For sequence `index` of the range; none beyond the range.
  __device__ TileLevels(const PrefillParams& p, int32_t index) : first(0), count(0) {
    if (index >= p.num_sequences) return;
    const int32_t sequence = p.first_sequence + index;
    const int32_t queries = p.query_start[sequence + 1] - p.query_start[sequence];
    first = max(p.context_len[sequence] - queries, 0) / p.tokens_per_tile;
    count = (queries + p.tokens_per_tile - 1) / p.tokens_per_tile;
  }
  __device__ int32_t end() const { return first + count; }
  /// The tiles at this level and beyond.
  __device__ int32_t from(int32_t level) const { return min(max(end() - level, 0), count); }
};

/// Counts a KV head's tiles at this level and beyond, of all sequences. Whole warps call it. Reads the step's inputs only.
__device__ inline int32_t count_query_tiles(const PrefillParams& p, int32_t level = 0) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int32_t tiles = 0;
#pragma unroll 1
  for (int32_t first = 0; first < p.num_sequences; first += 32)
    tiles += TileLevels(p, first + lane).from(level);
  return warp_sum(tiles);
}

/// Finds tile `number` of all KV heads together, those with the most keys first. Whole warps call it. Reads the step's inputs only.
__device__ inline QueryTile find_query_tile(const PrefillParams& p, int32_t number) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int32_t index = number / p.cache.kv_heads;
  int32_t end = 0;
#pragma unroll 1
  for (int32_t first = 0; first < p.num_sequences; first += 32)
    end = max(end, TileLevels(p, first + lane).end());
  // The tile's level is in [level, end). The search begins where it would be if all sequences had the same length.
  end = max(warp_max(end) - index / p.num_sequences, 0);
  int32_t level = end;
  for (int32_t step = 1; level > 0; step *= 2) {
    level = max(level - step, 0);
    if (count_query_tiles(p, level) > index) break;
    if (level == 0) return {};
    end = level;
  }
  while (end - level > 1) {
    const int32_t middle = level + (end - level) / 2;
    if (count_query_tiles(p, middle) > index) {
      level = middle;
    } else {
      end = middle;
    }
  }
  index -= count_query_tiles(p, level + 1);
#pragma unroll 1
  for (int32_t first = 0; first < p.num_sequences; first += 32) {
    const TileLevels levels(p, first + lane);
    const bool has_tile = levels.first <= level && level < levels.end();
    const unsigned owners = __ballot_sync(kWholeWarp, has_tile);
    const int32_t below = __popc(owners & ((1u << lane) - 1));
    const unsigned owner = __ballot_sync(kWholeWarp, has_tile && below == index);
    index -= __popc(owners);
    if (owner == 0) continue;
    const int of = __ffs(static_cast<int>(owner)) - 1;
    const int32_t sequence = p.first_sequence + first + of;
    const int32_t token = (level - __shfl_sync(kWholeWarp, levels.first, of)) * p.tokens_per_tile;
    const int32_t begin = p.query_start[sequence], queries = p.query_start[sequence + 1] - begin;
    const int32_t context = p.context_len[sequence];
    return {.sequence = sequence,
            .first_token = begin + token,
            .tokens = min(p.tokens_per_tile, queries - token),
            .first_position = context - queries + token,
            .context = context,
            .kv_head = number % p.cache.kv_heads};
  }
  return {};
}

}  // namespace minfer::cuda
