#pragma once

#include <cmath>
#include <string>

#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/attention/prefill/attention_query_tile.cuh"
#include "kernels/cuda/attention/shared/attention_fragments.cuh"
#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/launch/launch.h"

// Causal attention of sequences with any number of tokens, over a paged cache in bf16, f16 or fp8 e4m3:
// FlashAttention-2 (Dao 2023).
//
//   out[t, h] = sum over j < keys(t) of softmax_j(scale * q[t, h] . k[j, h / group]) v[j, h / group]
//   keys(t) = context of t's sequence - tokens of the sequence after t in this step
//
// PrefillOptionParams adds j >= keys(t) - window, capped scores and a sink in the softmax. Key tiles in front
// of the window of a tile's first token are not read; a sink joins when results are written.
//
//   qkv     [tokens, (heads + 2 kv_heads) * head_size] bf16, rows `stride` apart; only q is read
//   k, v    [num_blocks, kv_heads, block_size, head_size]
//   out     [tokens, heads * head_size] bf16
//
// A block takes up to 128 rows of one sequence and KV head, and all their keys in tiles of 64. A row is a query
// token with one of the query heads that share the KV head. Grid: KV heads x the most tiles that the step's
// tokens can form, tiles with the most keys first. A block finds its tile from query_start and context_len and
// ends if there is none; these are inputs of the step, so it does so before begin_kernel(). Four warps have 32
// rows each; scores, weights and results stay in registers. The next tile of K and V is copied while one is
// multiplied. A multiprocessor has two blocks, so that the softmax of one runs beside the products of the
// other.
//
// Operations: 4 * head_size for each row and key. Bytes: q and out once, K and V once for each tile, mostly
// from L2.
namespace minfer::cuda {

constexpr int kPrefillWarps = 4;
constexpr int kKeyTile = 64;

template <class Kv, int kHead, class Params>
struct PrefillKernel {
  using Fragments = KvFragments<Kv, kHead>;
  using Element = typename Fragments::Element;
  using KvRows = typename Fragments::Rows;
  using QueryTileRows = SharedRows<kHead * 2>;
  static constexpr int kThreads = kPrefillWarps * 32;
  static constexpr int kRowBytes = kHead * static_cast<int>(sizeof(Kv));
  static constexpr int kTileBytes = kKeyTile * kRowBytes;
  static constexpr int kDimSteps = kHead / 16;
  static constexpr int kGroups = sizeof(Kv) == 1 ? 2 : 1;  ///< of 16 keys, loaded together
  static constexpr int kQueryPieces = kHead * 2 / 16;      ///< of 16 bytes, in a row

  struct Shared {
    char query[kQueryRows * kHead * 2];  ///< later the results
    char kv[2][2][kTileBytes];           ///< two stages of K and V
  };

  /// A warp's state of its rows. Fragment m holds rows 16 m to 16 m + 15; a lane holds rows lane_group() and
  /// lane_group() + 8 of them.
  struct Softmax {
    float value[2][2 * kDimSteps][4];
    float max[2][2];
    float sum[2][2];
  };
  using Scores = float[2][kKeyTile / 8][4];

  const Params& p;
  Shared& shared;
  const QueryTile tile;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;

  /// The first key that a row of the tile reads.
  __device__ int32_t first_seen() const requires kHasOptions<Params> {
    return p.options.first_seen(tile.first_position);
  }

  /// Looks up keys first_key + lane and first_key + lane + 32.
  __device__ void look_up_keys(int32_t first_key, KeyRow (&places)[2]) const {
    const int32_t* blocks = p.block_table + int64_t{tile.sequence} * p.max_blocks;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int32_t position = first_key + 32 * i + lane;
      int32_t end = tile.keys();
      if constexpr (kHasOptions<Params>) end = position < first_seen() ? 0 : end;
      places[i] = look_up(p.cache, blocks, tile.kv_head, position, end);
    }
  }

  /// Starts the copy of a tile of K and V.
  __device__ void copy_tile(int stage, const KeyRow (&places)[2]) const {
    const int32_t rows[2] = {places[0].row(p.cache), places[1].row(p.cache)};
    const uint32_t to = shared_address(shared.kv[stage][0]);
    constexpr int kPasses = kKeyTile * KvRows::kPieces / kThreads;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int key = (i * kThreads + thread) / KvRows::kPieces;
      const int piece = (i * kThreads + thread) % KvRows::kPieces;
      const int32_t row = __shfl_sync(~0u, rows[i >= kPasses / 2 ? 1 : 0], key % 32);
      const int64_t offset = int64_t{max(row, 0)} * kRowBytes + piece * 16;
      const uint32_t at = to + KvRows::offset(key, piece);
      copy_async(at, static_cast<const char*>(p.k) + offset, row >= 0);
      copy_async(at + kTileBytes, static_cast<const char*>(p.v) + offset, row >= 0);
    }
    commit_copies();
  }

  /// score = q k^T of the warp's rows and a tile of keys.
  __device__ void multiply_keys(uint32_t keys, Scores& score) const {
    const uint32_t query = shared_address(shared.query);
#pragma unroll 2  // with more, loads run so far ahead that registers spill
    for (int step = 0; step < kDimSteps; ++step) {
      uint32_t q[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int row = warp * 32 + m * 16 + lane % 16;
        load_matrices(q[m], query + QueryTileRows::offset(row, 2 * step + lane / 16));
      }
#pragma unroll
      for (int n = 0; n < kKeyTile / 16; n += kGroups) {
        uint32_t k[kGroups][4];
        Fragments::load_keys(k, keys + n * 16 * kRowBytes, step);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            multiply_add<Element>(score[m][2 * (n + g)], q[m], k[g][0], k[g][2]);
            multiply_add<Element>(score[m][2 * (n + g) + 1], q[m], k[g][1], k[g][3]);
          }
        }
      }
    }
  }

  /// The last key position that a row of this lane may read.
  __device__ int32_t last_key(int m, int half) const {
    return tile.first_position + (warp * 32 + m * 16 + 8 * half + lane_group()) / p.group;
  }

  __device__ void mask(int32_t first_key, Scores& score) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t allowed = last_key(m, i / 2) - first_key - 2 * lane_in_group() - i % 2;
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n) {
          if (8 * n > allowed) score[m][n][i] = -INFINITY;
        }
      }
    }
  }

  /// Caps scores, and masks keys in front of a row's window.
  __device__ void apply_options(int32_t first_key, Scores& score) const {
    if (p.options.cap > 0.0f) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            score[m][n][i] = p.options.capped(score[m][n][i]);
        }
      }
    }
    if (first_key >= p.options.first_seen(tile.keys() - 1)) return;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t first =
            p.options.first_seen(last_key(m, i / 2)) - first_key - 2 * lane_in_group() - i % 2;
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n) {
          if (8 * n < first) score[m][n][i] = -INFINITY;
        }
      }
    }
  }

  /// Turns scores into weights relative to the largest score of each row, and rescales the sums and values so far.
  __device__ void weigh(Scores& score, Softmax& softmax) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float max = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n)
          max = fmaxf(max, fmaxf(score[m][n][2 * half], score[m][n][2 * half + 1]));
        max = fmaxf(group_max(max), softmax.max[m][half]);
        const float base = max == -INFINITY ? 0.0f : max * p.scale_log2;
        const float factor = exp2_approx(softmax.max[m][half] * p.scale_log2 - base);
        float sum = 0.0f;
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            score[m][n][i] = exp2_approx(score[m][n][i] * p.scale_log2 - base);
            sum += score[m][n][i];
          }
        }
        softmax.max[m][half] = max;
        softmax.sum[m][half] = softmax.sum[m][half] * factor + sum;
#pragma unroll
        for (int n = 0; n < 2 * kDimSteps; ++n) {
          softmax.value[m][n][2 * half] *= factor;
          softmax.value[m][n][2 * half + 1] *= factor;
        }
      }
    }
  }

  /// value += weight v. The fragments of scores serve as a product's left operand.
  __device__ void multiply_values(uint32_t values, const Scores& weight, Softmax& softmax) const {
#pragma unroll
    for (int n = 0; n < kKeyTile / 16; n += kGroups) {
      uint32_t w[kGroups][2][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const float(&pair)[4] = weight[m][2 * (n + g) + i / 2];
            w[g][m][i] = pack<Element>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
          }
        }
      }
#pragma unroll
      for (int step = 0; step < kDimSteps; ++step) {
        uint32_t v[kGroups][4];
        Fragments::load_values(v, values + n * 16 * kRowBytes, step);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
#pragma unroll
          for (int m = 0; m < 2; ++m) {
            multiply_add<Element>(softmax.value[m][2 * step], w[g][m], v[g][0], v[g][2]);
            multiply_add<Element>(softmax.value[m][2 * step + 1], w[g][m], v[g][1], v[g][3]);
          }
        }
      }
    }
  }

  /// Writes the warp's rows through its part of the query tile, which no other warp reads.
  __device__ void write_results(Softmax& softmax) const {
    __syncwarp();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = group_sum(softmax.sum[m][half]);
        float inverse = sum != 0.0f ? 1.0f / sum : 0.0f;
        const int row = warp * 32 + m * 16 + 8 * half + lane_group();
        if constexpr (kHasOptions<Params>) {
          inverse = p.options.end_factor(softmax.max[m][half] * p.scale_log2, sum,
                                         tile.kv_head * p.group + row % p.group);
        }
#pragma unroll
        for (int step = 0; step < kDimSteps; ++step) {
          const auto value = [&](int n, int i) {
            return softmax.value[m][2 * step + n][2 * half + i] * inverse;
          };
          if constexpr (sizeof(Kv) == 1) {  // fragment n has dims 2 c + n: a lane has four neighbours
            const uint2 dims = {pack<__nv_bfloat16>(value(0, 0), value(1, 0)),
                                pack<__nv_bfloat16>(value(0, 1), value(1, 1))};
            const int piece = 2 * step + lane_in_group() / 2;
            *reinterpret_cast<uint2*>(shared.query + QueryTileRows::offset(row, piece) +
                                      lane_in_group() % 2 * 8) = dims;
          } else {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
              *reinterpret_cast<uint32_t*>(shared.query + QueryTileRows::offset(row, 2 * step + n) +
                                           lane_in_group() * 4) =
                  pack<__nv_bfloat16>(value(n, 0), value(n, 1));
            }
          }
        }
      }
    }
    __syncwarp();
#pragma unroll 4
    for (int i = 0; i < kQueryPieces; ++i) {
      const int row = warp * 32 + (i * 32 + lane) / kQueryPieces;
      const int piece = (i * 32 + lane) % kQueryPieces;
      tile.template store_piece<kHead>(p, row, piece, shared.query + QueryTileRows::offset(row, piece));
    }
  }

  __device__ void run() const {
    const int32_t keys = tile.keys();
    int32_t begin = 0;
    if constexpr (kHasOptions<Params>) begin = first_seen() / kKeyTile * kKeyTile;
    KeyRow places[2];
    look_up_keys(begin, places);
    copy_tile(0, places);
    look_up_keys(begin + kKeyTile, places);
    load_query_tile<Kv, Element, kHead, kQueryRows, kThreads>(p, tile, shared.query);
    Softmax softmax{{}, {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}}, {}};
    int stage = 0;
#pragma unroll 1
    for (int32_t first_key = begin; first_key < keys; first_key += kKeyTile, stage ^= 1) {
      wait_for_copies<0>();
      __syncthreads();  // all of this tile has come, and no warp uses the one before
      if (first_key + kKeyTile < keys) {
        copy_tile(stage ^ 1, places);
        look_up_keys(first_key + 2 * kKeyTile, places);
      }
      Scores score = {};
      multiply_keys(shared_address(shared.kv[stage][0]), score);
      if constexpr (kHasOptions<Params>) apply_options(first_key, score);
      if (first_key + kKeyTile > tile.first_position) mask(first_key, score);
      weigh(score, softmax);
      multiply_values(shared_address(shared.kv[stage][1]), score, softmax);
    }
    write_results(softmax);
  }
};

template <class Kv, int kHead, class Params>
__global__ __launch_bounds__(kPrefillWarps * 32, 2) void attention_prefill_kernel(Params p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  extern __shared__ __align__(128) char memory[];
  using Kernel = PrefillKernel<Kv, kHead, Params>;
  const auto tile = find_query_tile(p, static_cast<int32_t>(blockIdx.x));
  begin_kernel(stamps);
  allow_next_kernel();
  if (tile.tokens == 0) return;
  Kernel{p, *reinterpret_cast<typename Kernel::Shared*>(memory), tile}.run();
}

template <class Kv, int kHead, class Params>
void launch_prefill_kernel(Launch& launch, const Params& params) {
  using Shared = typename PrefillKernel<Kv, kHead, Params>::Shared;
  static_assert(sizeof(Shared) <= kTensorCoreSharedBytes);
  launch("attention", attention_prefill_kernel<Kv, kHead, Params>,
         dim3(static_cast<unsigned>(params.max_tiles * params.cache.kv_heads)), dim3(kPrefillWarps * 32),
         sizeof(Shared), params);
}

template <class Kv, class Params>
void attention_prefill(Launch& launch, const Params& params, int32_t head_size) {
  if (head_size == 64) return launch_prefill_kernel<Kv, 64>(launch, params);
  if (head_size == 128) return launch_prefill_kernel<Kv, 128>(launch, params);
  unsupported("attention", "a head size of 64 or 128", std::to_string(head_size));
}

}  // namespace minfer::cuda
