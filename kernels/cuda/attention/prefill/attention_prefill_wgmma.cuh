#pragma once

#include <cmath>

#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/attention/prefill/attention_query_tile.cuh"
#include "kernels/cuda/device/wgmma.cuh"

// Causal attention of sequences that bring any number of tokens, for a cache in bf16 on Hopper: the same
// operation, tensors and tiles as attention_prefill.cuh, with warpgroup products.
//
// A block takes 128 rows: two warpgroups with 64 each. Keys come in tiles of 128. The products of a warpgroup
// run beside its softmax, as in FlashAttention-3 (Shah et al. 2024): while the weights of a tile are made,
// the results of the tile before are summed. One barrier a tile; behind it, the next K and this tile's V are
// copied (their rows lie anywhere in the paged cache) while the tile is multiplied. Scores, weights and
// results stay in registers. Shared memory: Q and two stages of K and V, 160 KB for heads of 128.
namespace minfer::cuda {

constexpr int kWgmmaThreads = 256;
constexpr int kWgmmaKeyTile = 128;

template <int kHead>
struct WgmmaKernel {
  static constexpr int kPanels = kHead / 64;
  static constexpr int kPanelBytes = 128 * 128;  ///< of 128 rows, be they queries or keys
  static constexpr int kRowBytes = kHead * 2;
  static constexpr int kPieces = kRowBytes / 16;  ///< of a row

  struct Shared {
    char query[kPanels][kPanelBytes];  ///< later the results
    char key[2][kPanels][kPanelBytes];
    char value[2][kPanels][kPanelBytes];
  };

  /// What a warpgroup keeps of its rows: a lane of a warp has rows lane / 4 and + 8 of the warp's 16.
  struct Softmax {
    float value[kHead / 2];
    float max[2];
    float sum[2];
  };
  using Scores = float[kWgmmaKeyTile / 2];
  using Weights = uint32_t[kWgmmaKeyTile / 4];

  const PrefillParams& p;
  Shared& shared;
  const QueryTile tile;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  static __device__ __forceinline__ int offset(int row, int piece) {
    return piece / 8 * kPanelBytes + row * 128 + ((piece % 8) ^ (row % 8)) * 16;
  }

  __device__ void copy_query() const {
    const uint32_t to = shared_address(shared.query);
#pragma unroll 4
    for (int i = 0; i < 128 * kPieces / kWgmmaThreads; ++i) {
      const int row = (i * kWgmmaThreads + thread) / kPieces;
      const int piece = (i * kWgmmaThreads + thread) % kPieces;
      const bool valid = row < tile.rows(p);
      const int64_t from = valid ? tile.head_of_row(p, row, p.qkv_stride, kHead) : 0;
      copy_async(to + offset(row, piece), static_cast<const char*>(p.qkv) + 2 * from + piece * 16, valid);
    }
  }

  /// The key of a tile that this lane looks up for its warp.
  __device__ KeyPlace look_up_key(int32_t index) const {
    const int32_t* blocks = p.block_table + int64_t{tile.sequence} * p.max_blocks;
    const int32_t position = index * kWgmmaKeyTile + warp * 16 + lane % 16;
    return look_up(p.cache, blocks, tile.kv_head, position, tile.keys());
  }

  /// Begins to copy the warp's 16 keys of a tile of K or V.
  __device__ void copy_keys(const void* from, const KeyPlace& place, char (&to)[kPanels][kPanelBytes]) const {
    const uint32_t address = shared_address(to);
    const int32_t row = place.row(p.cache);
#pragma unroll
    for (int i = 0; i < 16 * kPieces / 32; ++i) {
      const int key = (i * 32 + lane) / kPieces;
      const int piece = (i * 32 + lane) % kPieces;
      const int32_t source = __shfl_sync(~0u, row, key);
      copy_async(address + offset(warp * 16 + key, piece),
                 static_cast<const char*>(from) + int64_t{max(source, 0)} * kRowBytes + piece * 16,
                 source >= 0);
    }
  }

  /// All copies that were begun are there, and all warps are done with what they multiplied.
  __device__ static void take_over_copies() {
    wait_for_copies<0>();
    publish_copies();
    __syncthreads();
  }

  __device__ void begin_scores(int stage, Scores& score) const {
    const uint32_t query = shared_address(shared.query) + warp / 4 * 64 * 128;
    const uint32_t key = shared_address(shared.key[stage]);
#pragma unroll
    for (int step = 0; step < kHead / 16; ++step) {
      const uint32_t at = step / 4 * kPanelBytes + step % 4 * 32;
      multiply_panels(score, panel_operand(query + at), panel_operand(key + at), step > 0);
    }
    commit_products();
  }

  __device__ void begin_values(int stage, const Weights& weight, Softmax& softmax) const {
    const uint32_t value = shared_address(shared.value[stage]);
#pragma unroll
    for (int step = 0; step < kWgmmaKeyTile / 16; ++step) {
      multiply_rows(softmax.value, weight + 4 * step, panel_operand(value + step * 16 * 128, kPanelBytes));
    }
    commit_products();
  }

  __device__ int row_of_lane(int half) const {
    return warp * 16 + 8 * half + lane / 4;
  }

  __device__ void mask(int32_t first_key, Scores& score) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t allowed = tile.first_position + row_of_lane(half) / p.group - first_key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kWgmmaKeyTile / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (8 * n + i > allowed) score[4 * n + 2 * half + i] = -INFINITY;
        }
      }
    }
  }

  /// Turns scores into weights relative to the largest score of each row so far. `factor`: what the results
  /// before are worth now.
  __device__ void weigh(Scores& score, Softmax& softmax, float (&factor)[2]) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float max = softmax.max[half];
#pragma unroll
      for (int n = 0; n < kWgmmaKeyTile / 8; ++n)
        max = fmaxf(max, fmaxf(score[4 * n + 2 * half], score[4 * n + 2 * half + 1]));
      max = group_max(max);
      const float base = max == -INFINITY ? 0.0f : max * p.scale_log2;
      factor[half] = exp2_approx(softmax.max[half] * p.scale_log2 - base);
      softmax.max[half] = max;
      softmax.sum[half] *= factor[half];
#pragma unroll
      for (int n = 0; n < kWgmmaKeyTile / 8; ++n) {
#pragma unroll
        for (int i = 4 * n + 2 * half; i < 4 * n + 2 * half + 2; ++i) {
          score[i] = exp2_approx(score[i] * p.scale_log2 - base);
        }
        softmax.sum[half] += score[4 * n + 2 * half] + score[4 * n + 2 * half + 1];
      }
    }
  }

  static __device__ void rescale(Softmax& softmax, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kHead / 2; ++i)
      softmax.value[i] *= factor[i / 2 % 2];
  }

  static __device__ void round_weights(const Scores& score, Weights& weight) {
#pragma unroll
    for (int i = 0; i < kWgmmaKeyTile / 4; ++i)
      weight[i] = pack<__nv_bfloat16>(score[2 * i], score[2 * i + 1]);
  }

  /// Writes the warp's rows through its part of the query tile, which no product reads any more.
  __device__ void write_results(Softmax& softmax) const {
    char* rows = shared.query[0];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = group_sum(softmax.sum[half]);
      const float inverse = sum != 0.0f ? 1.0f / sum : 0.0f;
#pragma unroll
      for (int n = 0; n < kHead / 8; ++n) {
        const float* pair = softmax.value + 4 * n + 2 * half;
        *reinterpret_cast<uint32_t*>(rows + offset(row_of_lane(half), n) + lane % 4 * 4) =
            pack<__nv_bfloat16>(pair[0] * inverse, pair[1] * inverse);
      }
    }
    __syncwarp();
#pragma unroll 4
    for (int i = 0; i < 16 * kPieces / 32; ++i) {
      const int row = warp * 16 + (i * 32 + lane) / kPieces;
      const int piece = (i * 32 + lane) % kPieces;
      tile.template store_piece<kHead>(p, row, piece, rows + offset(row, piece));
    }
  }

  __device__ void run() const {
    const int32_t tiles = max(1, (tile.keys() + kWgmmaKeyTile - 1) / kWgmmaKeyTile);
    KeyPlace place = look_up_key(0);
    copy_query();
    copy_keys(p.k, place, shared.key[0]);
    commit_copies();
    KeyPlace next_place = look_up_key(1);
    Softmax softmax{{}, {-INFINITY, -INFINITY}, {}};
    Scores score;
    Weights weight;
    float factor[2];
#pragma unroll 1
    for (int32_t i = 0; i < tiles; ++i) {
      take_over_copies();
      hold(softmax.value);
      begin_products();
      begin_scores(i % 2, score);
      if (i > 0) begin_values((i - 1) % 2, weight, softmax);
      if (i + 1 < tiles) copy_keys(p.k, next_place, shared.key[(i + 1) % 2]);
      copy_keys(p.v, place, shared.value[i % 2]);
      commit_copies();
      place = next_place;
      next_place = look_up_key(i + 2);
      if (i > 0) {
        wait_products<1>();
      } else {
        wait_products<0>();
      }
      hold(score);
      if ((i + 1) * kWgmmaKeyTile > tile.first_position) mask(i * kWgmmaKeyTile, score);
      weigh(score, softmax, factor);
      wait_products<0>();
      hold(softmax.value);
      hold(weight);
      if (__any_sync(~0u, factor[0] != 1.0f || factor[1] != 1.0f)) rescale(softmax, factor);
      round_weights(score, weight);
    }
    take_over_copies();
    hold(softmax.value);
    begin_products();
    begin_values((tiles - 1) % 2, weight, softmax);
    wait_products<0>();
    hold(softmax.value);
    hold(weight);
    write_results(softmax);
  }
};

}  // namespace minfer::cuda
