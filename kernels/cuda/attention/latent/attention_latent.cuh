#pragma once

// Attention of many query heads over one row per token that holds both key and value (latent attention), on
// tensor cores, for any number of tokens a sequence.
//
//   out[t, h] = sum over j < keys(t) of softmax_j(scale * q[t, h] . k[j]) k[j][0 .. 511]
//   keys(t) = context of t's sequence - tokens of the sequence after t in this step
//
//   q     [tokens, heads, 576] bf16, rows `qkv_stride` apart
//   k     [num_blocks, block_size, 576] bf16 or f16; the first 512 elements are the value
//   out   [tokens, heads, 512] bf16
//
// A block of 8 warps takes a tile of kRows rows (query token times query head) of one sequence and a part of its keys, in
// chunks of 64: grid (tiles, splits), LatentPlan. The warps form kRows / 16 groups of 16 rows, with kParts warps each:
//   scores   Q K^T: a warp has 64 / kParts keys of the chunk
//   weights  maxima over the warps of a group through shared memory; weights to shared memory as elements of the cache's type
//   values   P V: a warp has 512 / kParts elements, which stay in registers from chunk to chunk
// Shared memory holds Q (18 or 72 KiB) and two chunks of keys (72 KiB each): one is copied while the other is multiplied.
// A chunk's rows are read once for both products: 1,152 bytes a key. With several splits, each writes its sums (f32) and
// its maximum, and a second kernel adds them up in the order of the keys, so that results repeat bit for bit.
//
// If keys are chosen, each query token has tiles of its own, and its keys are those that are listed; a query that sees no more keys than
// would be listed has all.
//
// Alignment: 16 bytes of q and k. A token without keys (padding) gives zeros. All reads are behind begin_kernel().
#include "kernels/cuda/attention/latent/attention_latent.h"
#include "kernels/cuda/attention/shared/attention_tiles.cuh"

namespace minfer::cuda {

inline constexpr int kLatentWarps = 8;
inline constexpr int kLatentThreads = kLatentWarps * kWarpSize;

template <class Kv, int kRows>
struct LatentBlock {
  static constexpr int kGroups = kRows / 16;             ///< of rows
  static constexpr int kParts = kLatentWarps / kGroups;  ///< warps in a group
  static constexpr int kKeyTiles = kLatentKeys / kParts / 8;
  static constexpr int kValueTiles = kLatentValues / kParts / 8;
  static_assert(kKeyTiles >= 1);
  using Rows = SharedRows<kLatentRow * 2>;
  using Weights = SharedRows<kLatentKeys * 2>;
  static constexpr int kQBytes = kRows * kLatentRow * 2;
  static constexpr int kChunkBytes = kLatentKeys * kLatentRow * 2;
  static constexpr int kWeightBytes = kRows * kLatentKeys * 2;
  /// One number a row for each warp: maxima of a chunk, at the end sums.
  static constexpr int kExchangeBytes = kLatentWarps * 16 * 4;
  static constexpr int kSharedBytes = kQBytes + 2 * kChunkBytes + kWeightBytes + kExchangeBytes;
  static_assert(kSharedBytes <= kLatentSharedBytes);

  const LatentParams& p;
  unsigned char* shared;
  int32_t sequence, first_row, num_rows;  ///< of the tile; rows of its sequence
  int32_t first_token, queries, context;  ///< of the sequence
  float sums[kValueTiles][4] = {};
  float max[2] = {-INFINITY, -INFINITY};  ///< of rows g and g + 8 of the group, so far
  float total[2] = {};                    ///< of this warp's weights
  const int32_t* chosen = nullptr;        ///< positions of the keys; null: keys are positions

  __device__ unsigned char* q() const { return shared; }
  __device__ unsigned char* chunk(int i) const { return shared + kQBytes + i % 2 * kChunkBytes; }
  __device__ unsigned char* weights() const { return shared + kQBytes + 2 * kChunkBytes; }
  __device__ float* exchange() const {
    return reinterpret_cast<float*>(shared + kQBytes + 2 * kChunkBytes + kWeightBytes);
  }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
  static __device__ int group() { return warp() / kParts; }
  static __device__ int part() { return warp() % kParts; }

  /// Finds the tile; false if there is none.
  __device__ bool find(int32_t tile) {
    sequence = p.first_sequence;
    if (p.chosen != nullptr) return find_query(tile);
    if (const int32_t tiles = p.plan.tiles_of_a_sequence; tiles > 0) {
      sequence += tile / tiles;
      tile %= tiles;
    }
    for (; sequence < p.first_sequence + p.num_sequences; ++sequence) {
      first_token = p.query_start[sequence];
      queries = p.query_start[sequence + 1] - first_token;
      num_rows = queries * p.heads;
      const int32_t tiles = (num_rows + kRows - 1) / kRows;
      if (tile < tiles) {
        first_row = tile * kRows;
        context = p.context_len[sequence];
        return true;
      }
      tile -= tiles;
    }
    return false;
  }

  /// The same where each query token is a sequence of its own.
  __device__ bool find_query(int32_t tile) {
    const int32_t tiles = p.plan.tiles_of_a_sequence;
    first_token = p.query_start[sequence] + tile / tiles;
    if (first_token >= p.query_start[sequence + p.num_sequences]) return false;
    while (p.query_start[sequence + 1] <= first_token)
      ++sequence;
    first_row = tile % tiles * kRows;
    num_rows = p.heads;
    queries = 1;
    context = p.context_len[sequence] - (p.query_start[sequence + 1] - 1 - first_token);
    if (context > p.most_chosen) {
      context = p.most_chosen;
      chosen = p.chosen + int64_t{first_token} * context;
    }
    return true;
  }

  /// Keys that row `row` of the tile sees; 0 behind the last row.
  __device__ int32_t keys_of(int32_t row) const {
    const int32_t of_sequence = first_row + row;
    if (of_sequence >= num_rows) return 0;
    return max_int(0, context - (queries - 1 - of_sequence / p.heads));
  }
  static __device__ int32_t max_int(int32_t a, int32_t b) { return a > b ? a : b; }

  /// Keys that any row of the tile sees: the keys of its last row.
  __device__ int32_t keys() const {
    const int32_t last = first_row + kRows < num_rows ? first_row + kRows - 1 : num_rows - 1;
    return max_int(0, context - (queries - 1 - last / p.heads));
  }

  /// Loads bf16 as elements of Kv; zeros behind the last row.
  __device__ void load_q() {
    constexpr int kPieces = kLatentRow / 8;
    for (int i = static_cast<int>(threadIdx.x); i < kRows * kPieces; i += kLatentThreads) {
      const int32_t row = i / kPieces, piece = i % kPieces, of_sequence = first_row + row;
      uint4 eight = {};
      if (of_sequence < num_rows) {
        const auto* from = static_cast<const __nv_bfloat16*>(p.qkv) +
                           (first_token + of_sequence / p.heads) * p.qkv_stride +
                           int64_t{of_sequence % p.heads} * kLatentRow + 8 * piece;
        eight = *reinterpret_cast<const uint4*>(from);
        eight = {from_bf16_pair<Kv>(eight.x), from_bf16_pair<Kv>(eight.y), from_bf16_pair<Kv>(eight.z),
                 from_bf16_pair<Kv>(eight.w)};
      }
      *reinterpret_cast<uint4*>(q() + Rows::offset(row, piece)) = eight;
    }
  }

  /// Starts the copy of a chunk's rows, one row a warp at a time; zeros behind the last key.
  __device__ void copy_chunk(int index, int32_t end) const {
    constexpr int kPieces = kLatentRow / 8;
    const int32_t* blocks = p.block_table + int64_t{sequence} * p.max_blocks;
    const uint32_t to = shared_address(chunk(index));
    for (int row = warp(); row < kLatentKeys; row += kLatentWarps) {
      const int32_t key = index * kLatentKeys + row;
      const bool there = key < end;
      const int32_t position = !there ? 0 : chosen != nullptr ? chosen[key] : key;
      const BlockOffset place = block_offset(p.cache, position);
      const int64_t cache_row = kv_row(p.cache, there ? blocks[place.block] : 0, 0, place.offset);
      const auto* from = static_cast<const Kv*>(p.k) + cache_row * kLatentRow;
      for (int piece = lane(); piece < kPieces; piece += kWarpSize)
        copy_async(to + static_cast<uint32_t>(Rows::offset(row, piece)), from + 8 * piece, there);
    }
    commit_copies();
  }

  /// Scores of the group's rows and the warp's keys of a chunk.
  __device__ void score(int index, float (&scores)[kKeyTiles][4]) const {
    const uint32_t queries_at = shared_address(q()), keys_at = shared_address(chunk(index));
    const int row = 16 * group() + lane() % 16;
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t)
      for (int i = 0; i < 4; ++i)
        scores[t][i] = 0.0f;
#pragma unroll 3
    for (int step = 0; step < kLatentRow / 32; ++step) {  // two products a step
      uint32_t a[2][4];
#pragma unroll
      for (int half = 0; half < 2; ++half)
        load_matrices(a[half], queries_at + static_cast<uint32_t>(
                                                Rows::offset(row, 4 * step + 2 * half + lane() / 16)));
#pragma unroll
      for (int t = 0; t < kKeyTiles; ++t) {
        uint32_t b[4];
        const int key = part() * (kLatentKeys / kParts) + 8 * t + lane() % 8;
        load_matrices(b, keys_at + static_cast<uint32_t>(Rows::offset(key, 4 * step + lane() / 8)));
        multiply_add<Kv>(scores[t], a[0], b[0], b[1]);
        multiply_add<Kv>(scores[t], a[1], b[2], b[3]);
      }
    }
  }

  /// Scales the scores and masks keys that the two rows do not see. Finds each row's largest score over the warp's keys.
  __device__ void mask(int index, const int32_t (&seen)[2], float (&scores)[kKeyTiles][4],
                       float (&largest)[2]) const {
    largest[0] = largest[1] = -INFINITY;
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t key =
            index * kLatentKeys + part() * (kLatentKeys / kParts) + 8 * t + 2 * lane_in_group() + i % 2;
        scores[t][i] = key < seen[i / 2] ? scores[t][i] * p.scale_log2 : -INFINITY;
        largest[i / 2] = fmaxf(largest[i / 2], scores[t][i]);
      }
    }
    largest[0] = group_max(largest[0]);
    largest[1] = group_max(largest[1]);
  }

  /// Gives the warp's number for each row to all warps of the group. All threads call it.
  __device__ void give(const float (&values)[2]) const {
    if (lane_in_group() != 0) return;
    exchange()[warp() * 16 + lane_group()] = values[0];
    exchange()[warp() * 16 + lane_group() + 8] = values[1];
  }
  __device__ float given(int part_of_group, int half) const {
    return exchange()[(group() * kParts + part_of_group) * 16 + lane_group() + 8 * half];
  }

  /// Puts the weights of the scores into shared memory, and makes the sums so far relative to the new maxima.
  __device__ void weigh(const float (&scores)[kKeyTiles][4]) {
    float base[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = max[half];
      for (int i = 0; i < kParts; ++i)
        largest = fmaxf(largest, given(i, half));
      base[half] = largest == -INFINITY ? 0.0f : largest;
      const float correction = exp2_approx(max[half] - base[half]);
      max[half] = largest;
      total[half] *= correction;
#pragma unroll
      for (int t = 0; t < kValueTiles; ++t) {
        sums[t][2 * half] *= correction;
        sums[t][2 * half + 1] *= correction;
      }
    }
#pragma unroll
    for (int t = 0; t < kKeyTiles; ++t) {
      const int column = part() * (kLatentKeys / kParts) + 8 * t + 2 * lane_in_group();
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float first = exp2_approx(scores[t][2 * half] - base[half]);
        const float second = exp2_approx(scores[t][2 * half + 1] - base[half]);
        total[half] += first + second;
        const int at = Weights::offset(16 * group() + lane_group() + 8 * half, column / 8) + column % 8 * 2;
        *reinterpret_cast<uint32_t*>(weights() + at) = pack<Kv>(first, second);
      }
    }
  }

  /// Adds the weighted values of a chunk.
  __device__ void add_values(int index) {
    const uint32_t weights_at = shared_address(weights()), keys_at = shared_address(chunk(index));
#pragma unroll
    for (int step = 0; step < kLatentKeys / 16; ++step) {
      uint32_t a[4];
      load_matrices(a, weights_at + static_cast<uint32_t>(
                                        Weights::offset(16 * group() + lane() % 16, 2 * step + lane() / 16)));
#pragma unroll
      for (int t = 0; t < kValueTiles; t += 2) {
        uint32_t b[4];
        const int key = 16 * step + lane() % 16;
        const int piece = part() * (kLatentValues / kParts / 8) + t + lane() / 16;
        load_transposed(b, keys_at + static_cast<uint32_t>(Rows::offset(key, piece)));
        multiply_add<Kv>(sums[t], a, b[0], b[1]);
        multiply_add<Kv>(sums[t + 1], a, b[2], b[3]);
      }
    }
  }

  /// Adds all chunks of [begin, end).
  __device__ void run(int begin, int end) {
    const int32_t last_key = keys();
    if (begin < end) copy_chunk(begin, last_key);
    load_q();
    const int32_t seen[2] = {keys_of(16 * group() + lane_group()), keys_of(16 * group() + lane_group() + 8)};
    for (int index = begin; index < end; ++index) {
      wait_for_copies<0>();
      __syncthreads();  // the chunk and Q have come, and no warp reads the chunk that is overwritten next
      if (index + 1 < end) copy_chunk(index + 1, last_key);
      float scores[kKeyTiles][4], largest[2];
      score(index, scores);
      mask(index, seen, scores, largest);
      give(largest);
      __syncthreads();
      weigh(scores);
      __syncthreads();
      add_values(index);
    }
    __syncthreads();
    total[0] = group_sum(total[0]);
    total[1] = group_sum(total[1]);
    give(total);
    __syncthreads();
  }

  __device__ float total_of(int half) const {
    float sum = 0.0f;
    for (int i = 0; i < kParts; ++i)
      sum += given(i, half);
    return sum;
  }

  /// The first of the two elements that registers 2 `half` and 2 `half` + 1 of a tile of sums have.
  __device__ int column_of(int t) const {
    return part() * (kLatentValues / kParts) + 8 * t + 2 * lane_in_group();
  }

  __device__ void store() const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t of_sequence = first_row + 16 * group() + lane_group() + 8 * half;
      const float sum = total_of(half);
      const float factor = sum != 0.0f ? 1.0f / sum : 0.0f;
      if (of_sequence >= num_rows) continue;
      auto* out = static_cast<__nv_bfloat16*>(p.out) + (first_token + of_sequence / p.heads) * p.out_stride +
                  int64_t{of_sequence % p.heads} * kLatentValues;
#pragma unroll
      for (int t = 0; t < kValueTiles; ++t) {
        *reinterpret_cast<uint32_t*>(out + column_of(t)) =
            pack<__nv_bfloat16>(sums[t][2 * half] * factor, sums[t][2 * half + 1] * factor);
      }
    }
  }

  /// For a split without keys.
  __device__ void store_none(int64_t slot) const {
    if (threadIdx.x < kRows) p.maxima[slot * kRows + threadIdx.x] = {-INFINITY, 0.0f};
  }

  /// `slot`: index of the tile and the split.
  __device__ void store_partial(int64_t slot) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int64_t row = slot * kRows + 16 * group() + lane_group() + 8 * half;
      const float sum = total_of(half);
      if (part() == 0 && lane_in_group() == 0) p.maxima[row] = {max[half], sum};
#pragma unroll
      for (int t = 0; t < kValueTiles; ++t) {
        *reinterpret_cast<float2*>(p.partials + row * kLatentValues + column_of(t)) = {sums[t][2 * half],
                                                                                       sums[t][2 * half + 1]};
      }
    }
  }
};

template <class Kv, int kRows>
__global__ void __launch_bounds__(kLatentThreads, 1)
    attention_latent_kernel(const __grid_constant__ LatentParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  extern __shared__ __align__(128) unsigned char latent_shared[];
  begin_kernel(stamps);
  allow_next_kernel();
  LatentBlock<Kv, kRows> block{p, latent_shared};
  // The last tiles of a sequence see the most keys, so they come first.
  const auto tile = static_cast<int32_t>(gridDim.x - 1 - blockIdx.x);
  if (!block.find(tile)) return;
  const int chunks = (block.keys() + kLatentKeys - 1) / kLatentKeys;
  const auto split = static_cast<int>(blockIdx.y), splits = static_cast<int>(gridDim.y);
  const int begin = chunks * split / splits, end = chunks * (split + 1) / splits;
  if (splits == 1) {
    block.run(begin, end);
    return block.store();
  }
  const int64_t slot = int64_t{tile} * splits + split;
  if (begin == end) return block.store_none(slot);
  block.run(begin, end);
  block.store_partial(slot);
}

/// Adds up the splits of a row. A block takes one row of a tile: grid (tiles * kRows).
template <int kRows>
__global__ void __launch_bounds__(kLatentValues / 4)
    join_latent_kernel(const __grid_constant__ LatentParams p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  begin_kernel(stamps);
  allow_next_kernel();
  const int32_t tile = static_cast<int32_t>(blockIdx.x) / kRows,
                row = static_cast<int32_t>(blockIdx.x) % kRows;
  LatentBlock<__nv_bfloat16, kRows> block{p, nullptr};
  if (!block.find(tile) || block.first_row + row >= block.num_rows) return;
  const int32_t splits = p.plan.splits;
  const int64_t first = int64_t{tile} * splits * kRows + row;
  float max = -INFINITY;
  for (int32_t s = 0; s < splits; ++s)
    max = fmaxf(max, p.maxima[first + int64_t{s} * kRows].x);
  float total = 0.0f;
  float4 value = {};
  for (int32_t s = 0; s < splits; ++s) {
    const int64_t at = first + int64_t{s} * kRows;
    const float2 part = p.maxima[at];
    if (part.y == 0.0f) continue;
    const float weight = exp2f(part.x - max);
    const float4 of_split =
        *reinterpret_cast<const float4*>(p.partials + at * kLatentValues + 4 * threadIdx.x);
    total += weight * part.y;
    value = {value.x + weight * of_split.x, value.y + weight * of_split.y, value.z + weight * of_split.z,
             value.w + weight * of_split.w};
  }
  const float factor = total != 0.0f ? 1.0f / total : 0.0f;
  const int32_t of_sequence = block.first_row + row;
  auto* out = static_cast<__nv_bfloat16*>(p.out) +
              (block.first_token + of_sequence / p.heads) * p.out_stride +
              int64_t{of_sequence % p.heads} * kLatentValues + 4 * threadIdx.x;
  *reinterpret_cast<uint2*>(out) = {pack<__nv_bfloat16>(value.x * factor, value.y * factor),
                                    pack<__nv_bfloat16>(value.z * factor, value.w * factor)};
}

template <class Kv, int kRows>
void launch_latent_rows(Launch& launch, const LatentParams& params) {
  const dim3 grid(static_cast<unsigned>(params.plan.tiles), static_cast<unsigned>(params.plan.splits));
  launch("attention", attention_latent_kernel<Kv, kRows>, grid, kLatentThreads,
         LatentBlock<Kv, kRows>::kSharedBytes, params);
  if (params.plan.splits == 1) return;
  launch("attention_join", join_latent_kernel<kRows>, static_cast<unsigned>(params.plan.tiles * kRows),
         kLatentValues / 4, 0, params);
}

template <class Kv>
void attention_latent(Launch& launch, const LatentParams& params) {
  if (params.plan.rows == 16) return launch_latent_rows<Kv, 16>(launch, params);
  launch_latent_rows<Kv, 64>(launch, params);
}

}  // namespace minfer::cuda
