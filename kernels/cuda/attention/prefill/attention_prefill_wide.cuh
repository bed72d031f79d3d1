#pragma once

#include <cmath>

#include "kernels/cuda/attention/prefill/attention_prefill.h"
#include "kernels/cuda/attention/prefill/attention_query_tile.cuh"
#include "kernels/cuda/attention/shared/attention_fragments.cuh"
#include "kernels/cuda/attention/shared/attention_path.h"
#include "kernels/cuda/elementwise/kv_slots.cuh"
#include "kernels/cuda/launch/launch.h"

// Causal attention with heads of 512, of sequences with any number of tokens, over a paged cache in bf16, f16 or
// fp8 e4m3. Like attention_prefill.cuh, except that a row's results are too many for one warp's registers:
//
//   out[t, h] = softmax_j(scale * q[t, h] . k[j, h / group]) v[j, h / group],  j < keys(t), and with options as there
//
//   qkv     [tokens, (heads + 2 kv_heads) * 512] bf16, rows `stride` apart; only q is read
//   k, v    [num_blocks, kv_heads, block_size, 512]
//   out     [tokens, heads * 512] bf16
//
// A block of 8 warps takes up to 64 rows (query token times query head of a KV head) of one sequence and KV head, and all
// their keys in chunks of 64 KiB of K: 64 keys, in fp8 128. The warps form two groups of 32 rows, with four warps each:
//   scores   Q K^T: a warp has a quarter of the chunk's keys
//   weights  maxima over the warps of a group through shared memory; weights to shared memory as elements of the products
//   values   P V: a warp has 128 of the 512 columns, in 128 registers from chunk to chunk
// Shared memory holds Q (64 KiB), one chunk of K and one of V (64 KiB each). The next K is copied while values
// are added, the next V while scores are computed. Grid: KV heads x the most tiles that the step's tokens can
// form, tiles with the most keys first. A block finds its tile from the step's inputs before begin_kernel().
//
// Alignment: 16 bytes of q, k, v and out. A token without keys (padding) gives zeros. Operations and bytes as in attention_prefill.cuh.
namespace minfer::cuda {

inline constexpr int kWideWarps = 8;
inline constexpr int kWideThreads = kWideWarps * 32;

template <class Kv, class Params>
struct WidePrefillKernel {
  using Fragments = KvFragments<Kv, kWideHeadSize>;
  using Element = typename Fragments::Element;
  using KvRows = typename Fragments::Rows;
  using QueryTileRows = SharedRows<kWideHeadSize * 2>;
  static constexpr int kRowBytes = kWideHeadSize * static_cast<int>(sizeof(Kv));
  static constexpr int kChunkBytes = 64 << 10;
  static constexpr int kKeys = kChunkBytes / kRowBytes;  ///< of a chunk
  static constexpr int kParts = 4;                       ///< warps in a group of rows
  static constexpr int kPartKeys = kKeys / kParts;
  static constexpr int kGroups = sizeof(Kv) == 1 ? 2 : 1;  ///< of 16 keys, loaded together
  static constexpr int kPartSteps = kWideHeadSize / 16 / kParts;
  static constexpr int kQueryPieces = kWideHeadSize * 2 / 16;
  using Weights = SharedRows<kKeys * 2>;
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kKeysOfPass = kWideThreads / kPieces;  ///< that all threads copy together
  static constexpr int kPasses = kKeys / kKeysOfPass;
  static_assert(kPartKeys == 16 * kGroups && kPieces % 32 == 0 && kPasses <= 32);

  struct Shared {
    char query[kWideQueryRows * kWideHeadSize * 2];  ///< later the results
    char k[kChunkBytes];
    char v[kChunkBytes];
    char weights[kWideQueryRows * kKeys * 2];
    float exchange[kParts][kWideQueryRows];  ///< maxima of a chunk, at the end sums
  };

  /// Fragment m of a warp holds rows 16 m to 16 m + 15 of its group; a lane holds rows lane_group() and lane_group() + 8 of them.
  struct Softmax {
    float value[2][2 * kPartSteps][4];
    float max[2][2];
    float sum[2][2];  ///< of this lane's keys
  };
  using Scores = float[2][kPartKeys / 8][4];

  const Params& p;
  Shared& shared;
  const QueryTile tile;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int first_row = static_cast<int>(threadIdx.x) / 32 / kParts * 32;  ///< of the warp's group
  const int part = static_cast<int>(threadIdx.x) / 32 % kParts;

  __device__ int row_of(int m, int half) const { return first_row + 16 * m + 8 * half + lane_group(); }

  /// The key that the warp copies in pass `lane` of a chunk that begins at `first_key`.
  __device__ KeyRow look_up_key(int32_t first_key) const {
    const int32_t position = first_key + lane % kPasses * kKeysOfPass + warp * 32 / kPieces;
    int32_t end = tile.keys();
    if constexpr (kHasOptions<Params>) end = position < p.options.first_seen(tile.first_position) ? 0 : end;
    return look_up(p.cache, p.block_table + int64_t{tile.sequence} * p.max_blocks, tile.kv_head, position,
                   end);
  }

  /// Starts the copy of a chunk of K or V, whose rows the lanes have looked up.
  __device__ void copy_chunk(char* chunk, const void* cache, int32_t row_of_lane) const {
    const uint32_t to = shared_address(chunk);
    const int piece = thread % kPieces;
#pragma unroll 8
    for (int pass = 0; pass < kPasses; ++pass) {
      const int32_t row = __shfl_sync(kWholeWarp, row_of_lane, pass);
      const char* from = static_cast<const char*>(cache) + int64_t{max(row, 0)} * kRowBytes + piece * 16;
      copy_async(to + KvRows::offset(pass * kKeysOfPass + warp * 32 / kPieces, piece), from, row >= 0);
    }
    commit_copies();
  }

  /// score = q k^T for the group's rows and the warp's keys.
  __device__ void multiply_keys(Scores& score) const {
    const uint32_t query = shared_address(shared.query);
    const uint32_t keys = shared_address(shared.k) + part * kPartKeys * kRowBytes;
#pragma unroll 2
    for (int step = 0; step < kWideHeadSize / 16; ++step) {
      uint32_t q[2][4], k[kGroups][4];
#pragma unroll
      for (int m = 0; m < 2; ++m)
        load_matrices(q[m],
                      query + QueryTileRows::offset(first_row + 16 * m + lane % 16, 2 * step + lane / 16));
      Fragments::load_keys(k, keys, step);
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply_add<Element>(score[m][2 * g], q[m], k[g][0], k[g][2]);
          multiply_add<Element>(score[m][2 * g + 1], q[m], k[g][1], k[g][3]);
        }
      }
    }
  }

  /// Caps scores, and masks keys behind a row's own or in front of its window.
  __device__ void mask(int32_t first_key, Scores& score) const {
    const int32_t first_of_lane = first_key + part * kPartKeys + 2 * lane_in_group();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t last = tile.first_position + row_of(m, half) / p.group;
        int32_t first = 0;
        if constexpr (kHasOptions<Params>) first = p.options.first_seen(last);
#pragma unroll
        for (int n = 0; n < kPartKeys / 8; ++n) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            const int32_t key = first_of_lane + 8 * n + i % 2;
            if constexpr (kHasOptions<Params>) {
              if (p.options.cap > 0.0f) score[m][n][i] = p.options.capped(score[m][n][i]);
            }
            if (key > last || key < first) score[m][n][i] = -INFINITY;
          }
        }
      }
    }
  }

  /// Tells the warps of the group each row's largest score among this warp's keys.
  __device__ void give_maxima(const Scores& score) const {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float max = -INFINITY;
#pragma unroll
        for (int n = 0; n < kPartKeys / 8; ++n)
          max = fmaxf(max, fmaxf(score[m][n][2 * half], score[m][n][2 * half + 1]));
        max = group_max(max);
        if (lane_in_group() == 0) shared.exchange[part][row_of(m, half)] = max;
      }
    }
  }

  /// Puts the weights of the scores into shared memory, and makes the sums so far relative to the new maxima.
  __device__ void weigh(const Scores& score, Softmax& softmax) const {
    float base[2][2], factor[2][2];
    bool all_one = true;
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float max = softmax.max[m][half];
#pragma unroll
        for (int other = 0; other < kParts; ++other)
          max = fmaxf(max, shared.exchange[other][row_of(m, half)]);
        base[m][half] = max == -INFINITY ? 0.0f : max * p.scale_log2;
        factor[m][half] = exp2_approx(softmax.max[m][half] * p.scale_log2 - base[m][half]);
        softmax.max[m][half] = max;
        softmax.sum[m][half] *= factor[m][half];
        all_one = all_one && factor[m][half] == 1.0f;
      }
    }
    if (!__all_sync(kWholeWarp, all_one)) {
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 2 * kPartSteps; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i)
            softmax.value[m][n][i] *= factor[m][i / 2];
        }
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int n = 0; n < kPartKeys / 8; ++n) {
          const float first = exp2_approx(score[m][n][2 * half] * p.scale_log2 - base[m][half]);
          const float second = exp2_approx(score[m][n][2 * half + 1] * p.scale_log2 - base[m][half]);
          softmax.sum[m][half] += first + second;
          const int at = Weights::offset(row_of(m, half), part * (kPartKeys / 8) + n) + 4 * lane_in_group();
          *reinterpret_cast<uint32_t*>(shared.weights + at) = pack<Element>(first, second);
        }
      }
    }
  }

  /// value += weight v, for the group's rows and the warp's columns.
  __device__ void multiply_values(Softmax& softmax) const {
    const uint32_t weights = shared_address(shared.weights), values = shared_address(shared.v);
#pragma unroll 1
    for (int n = 0; n < kKeys / 16; n += kGroups) {
      uint32_t w[kGroups][2][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int m = 0; m < 2; ++m)
          load_matrices(w[g][m],
                        weights + Weights::offset(first_row + 16 * m + lane % 16, 2 * (n + g) + lane / 16));
      }
#pragma unroll
      for (int step = 0; step < kPartSteps; ++step) {
        uint32_t v[kGroups][4];
        Fragments::load_values(v, values + n * 16 * kRowBytes, part * kPartSteps + step);
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

  /// Finds the factor for a row's values at the end. All threads call it.
  __device__ void find_end_factors(const Softmax& softmax, float (&factor)[2][2]) const {
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float sum = group_sum(softmax.sum[m][half]);
        if (lane_in_group() == 0) shared.exchange[part][row_of(m, half)] = sum;
      }
    }
    __syncthreads();
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = row_of(m, half);
        float sum = 0.0f;
#pragma unroll
        for (int other = 0; other < kParts; ++other)
          sum += shared.exchange[other][row];
        factor[m][half] = sum != 0.0f ? 1.0f / sum : 0.0f;
        if constexpr (kHasOptions<Params>) {
          factor[m][half] = p.options.end_factor(softmax.max[m][half] * p.scale_log2, sum,
                                                 tile.kv_head * p.group + row % p.group);
        }
      }
    }
  }

  /// Writes the tile's rows through the memory of Q.
  __device__ void write_results(const Softmax& softmax) const {
    float factor[2][2];
    find_end_factors(softmax, factor);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int step = 0; step < kPartSteps; ++step) {
          const auto value = [&](int n, int i) {
            return softmax.value[m][2 * step + n][2 * half + i] * factor[m][half];
          };
          const int first_piece = 2 * (part * kPartSteps + step);
          if constexpr (sizeof(Kv) == 1) {  // fragment n has dims 2 c + n: a lane has four neighbours
            const uint2 dims = {pack<__nv_bfloat16>(value(0, 0), value(1, 0)),
                                pack<__nv_bfloat16>(value(0, 1), value(1, 1))};
            *reinterpret_cast<uint2*>(
                shared.query + QueryTileRows::offset(row_of(m, half), first_piece + lane_in_group() / 2) +
                lane_in_group() % 2 * 8) = dims;
          } else {
#pragma unroll
            for (int n = 0; n < 2; ++n) {
              *reinterpret_cast<uint32_t*>(
                  shared.query + QueryTileRows::offset(row_of(m, half), first_piece + n) +
                  lane_in_group() * 4) = pack<__nv_bfloat16>(value(n, 0), value(n, 1));
            }
          }
        }
      }
    }
    __syncthreads();
#pragma unroll 4
    for (int i = 0; i < kWideQueryRows * kQueryPieces / kWideThreads; ++i) {
      const int row = (i * kWideThreads + thread) / kQueryPieces;
      const int piece = (i * kWideThreads + thread) % kQueryPieces;
      tile.template store_piece<kWideHeadSize>(p, row, piece,
                                               shared.query + QueryTileRows::offset(row, piece));
    }
  }

  __device__ void run() const {
    const int32_t keys = tile.keys();
    int32_t begin = 0;
    if constexpr (kHasOptions<Params>) begin = p.options.first_seen(tile.first_position) / kKeys * kKeys;
    int32_t row = look_up_key(begin).row(p.cache);
    copy_chunk(shared.k, p.k, row);
    copy_chunk(shared.v, p.v, row);
    KeyRow next = look_up_key(begin + kKeys);
    load_query_tile<Kv, Element, kWideHeadSize, kWideQueryRows, kWideThreads>(p, tile, shared.query);
    Softmax softmax{{}, {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}}, {}};
#pragma unroll 1
    for (int32_t first_key = begin; first_key < keys; first_key += kKeys) {
      wait_for_copies<1>();
      __syncthreads();  // K has come, and in the first turn Q
      Scores score = {};
      multiply_keys(score);
      mask(first_key, score);
      give_maxima(score);
      __syncthreads();  // all have read K and told their maxima
      row = next.row(p.cache);
      copy_chunk(shared.k, p.k, row);
      weigh(score, softmax);
      wait_for_copies<1>();
      __syncthreads();  // V and the weights have come
      multiply_values(softmax);
      __syncthreads();  // all have read both
      copy_chunk(shared.v, p.v, row);
      next = look_up_key(first_key + 2 * kKeys);
    }
    wait_for_copies<0>();
    write_results(softmax);
  }
};

template <class Kv, class Params>
__global__ __launch_bounds__(kWideThreads, 1) void attention_prefill_wide_kernel(Params p, Stamps stamps) {
  const EndStamp end_stamp(stamps);
  extern __shared__ __align__(128) char memory[];
  using Kernel = WidePrefillKernel<Kv, Params>;
  const auto tile = find_query_tile(p, static_cast<int32_t>(blockIdx.x));
  begin_kernel(stamps);
  allow_next_kernel();
  if (tile.tokens == 0) return;
  Kernel{p, *reinterpret_cast<typename Kernel::Shared*>(memory), tile}.run();
}

template <class Kv>
void attention_prefill_wide(Launch& launch, const PrefillOptionParams& params) {
  using Shared = typename WidePrefillKernel<Kv, PrefillOptionParams>::Shared;
  static_assert(sizeof(Shared) <= kWideHeadSharedBytes);
  launch("attention", attention_prefill_wide_kernel<Kv, PrefillOptionParams>,
         dim3(static_cast<unsigned>(params.max_tiles * params.cache.kv_heads)), dim3(kWideThreads),
         sizeof(Shared), params);
}

}  // namespace minfer::cuda
