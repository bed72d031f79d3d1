#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/block_shared.h"
#include "kernels/cuda/device/strip_shared.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/strip/strip_division.h"
#include "kernels/cuda/product/strip/strip_output.cuh"
#include "kernels/cuda/product/strip/tile_strip_x.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/bulk_copy.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// Quantised weights with 2 to 8 tokens.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or activation(Wg x + bg, Wu x + bu) with gate and up
/// rows in one thread block.
///
/// A warp keeps x of its chunk of 256 columns in registers, as B operands, and takes the tiles of that chunk, strip
/// after strip: x is loaded once. So K is divided over the warps of a block and, if it has more chunks than warps, over
/// the blocks of a cluster. Each block adds up its warps' sums; then each adds up a part of the rows over the blocks.
/// Sums are added in one order. Without clusters a warp has several chunks of each strip in turn and loads x anew.
///
/// Tokens are B's columns. The mma's of a group of columns with one scale make a separate sum, which is then scaled in f32:
/// weights are exact. A lane holds the scales of two groups (TileScales), so they go round the four lanes that share its rows. The
/// sum starts with minus half_bias() times the sum of x: this cancels the offset beside the code in each number (tile_halves.cuh).
///
/// As in strip_loop.cuh, each warp keeps the next kStages tiles in flight, from before begin_kernel() on.
namespace minfer::cuda {

/// True if tiles have more than 3 KiB: they leave less room for other data.
template <DType type>
inline constexpr bool kHasLargeTiles = type == DType::q6_k || Tile<type>::kHasBytes;

template <DType type, int kMatrices_>
struct TileStrip {
  static constexpr int kMatrices = kMatrices_;
  static constexpr int kWarps = kHasSmallBlocks ? 8 : 16;
  /// Matrices of strips that a warp takes between two barriers of its block.
  static constexpr int kRound = kStripSharedBytes > 200 << 10 && !kHasLargeTiles<type> ? 4 : 2;
  static constexpr int kTokens = 8;
  /// The sums of a strip's next token lie this many floats further on, so that the lanes of a store use
  /// different banks.
  static constexpr int kTokenStride = kStripRows + 4;
  static constexpr int kStripSums = kTokens * kTokenStride;
  using Sums = float[kStripSums];
  using Partials = Sums[kRound];

  static constexpr int kGroups = half_bias<type>(0) == 0.0f ? 1 : kTileCols / Tile<type>::kScaleCols;
  static constexpr int64_t bytes(int stages, int buffers) {
    return kWarps * (buffers * sizeof(Partials) + kGroups * sizeof(StripBias<type>[4]) +
                     int64_t{stages} * Tile<type>::kBytes);
  }
  static constexpr int kStages = bytes(3, 2) + kRound * sizeof(Sums) <= kStripSharedBytes ? 3 : 2;
  /// Buffers of partial sums: with two of them a round needs one barrier.
  static constexpr int kBuffers = bytes(kStages, 2) + kRound * sizeof(Sums) <= kStripSharedBytes ? 2 : 1;
  /// Rounds whose sums a block keeps for its cluster.
  static constexpr int kLap = static_cast<int>(
      std::min<int64_t>((kStripSharedBytes - bytes(kStages, kBuffers)) / (kRound * sizeof(Sums)), 8));

  struct Shared {
    alignas(128) char rings[kWarps][kStages][Tile<type>::kBytes];
    Partials partials[kWarps][kBuffers];  ///< of the warps; at first the staging of x
    Sums sums[kLap * kRound];             ///< of the block
    StripBias<type> biases[kWarps][kGroups][4];
  };
  static_assert(kLap > 0 && sizeof(Shared) <= kStripSharedBytes);
};

/// The tiles of a warp: `warps` apart within a matrix of a strip (a unit); its units are `sets` apart.
struct TileStripWalk {
  int unit;
  int chunk;

  __device__ __forceinline__ void advance(const TileStripDivision& division, int first, int end) {
    chunk += division.warps;
    if (chunk < end) return;
    chunk = first;
    unit += division.sets;
  }
};

/// The sums of one round of `count` units, from the view of a block's threads.
template <class Strip>
struct TileStripRound {
  static constexpr int kElements = kStripRows * Strip::kTokens;
  using Partials = typename Strip::Partials;

  const ProductArgs& args;
  const TileStripDivision& division;
  int first_strip;  ///< of the round
  int count;        ///< of units

  __device__ __forceinline__ static int place(int element) {
    return element / kStripRows * Strip::kTokenStride + element % kStripRows;
  }
  __device__ __forceinline__ int strip(int of_round) const {
    return first_strip + of_round * division.clusters;
  }

  /// An element of a unit: token element / 16, row element % 16, summed over the warps of the unit's set. `warps`: their partial sums.
  __device__ __forceinline__ float sum(const Partials* warps, int unit, int element) const {
    const Partials* of_set = warps + unit % division.sets * division.warps * Strip::kBuffers;
    const float* at = &of_set[0][unit / division.sets][place(element)];
    constexpr int kStride = Strip::kBuffers * sizeof(Partials) / sizeof(float);
    float values[Strip::kWarps];  // all loads at once
#pragma unroll
    for (int warp = 0; warp < Strip::kWarps; ++warp)
      values[warp] = warp < division.warps ? at[warp * kStride] : 0.0f;
    float sum = values[0];
#pragma unroll
    for (int warp = 1; warp < Strip::kWarps; ++warp)
      sum += values[warp];
    return sum;
  }

  /// For a block that has all of K. `turn`: the thread that begins.
  __device__ __forceinline__ void write(const Partials* partials, int turn) const {
    const auto threads = static_cast<int>(blockDim.x);
    const int elements = kStripRows * args.tokens;
    for (int i = (static_cast<int>(threadIdx.x) + turn) % threads; i < count / Strip::kMatrices * elements;
         i += threads) {
      const int of_round = i / elements;
      const int element = i - of_round * elements;
      const int row = strip(of_round) * kStripRows + element % kStripRows;
      if (row >= args.rows) continue;
      const float value = sum(partials, Strip::kMatrices * of_round, element);
      if constexpr (Strip::kMatrices == 2) {
        const float up = sum(partials, 2 * of_round + 1, element);
        store_output(args, element / kStripRows, row, output_of(args, row, value, up));
      } else {
        store_output(args, element / kStripRows, row, output_of(args, row, value));
      }
    }
  }

#if __CUDA_ARCH__ >= 900
  /// Adds up sums for the other blocks of the cluster.
  __device__ __forceinline__ void add_up(const Partials* partials, typename Strip::Sums* sums) const {
    for (int i = static_cast<int>(threadIdx.x); i < count * kElements; i += static_cast<int>(blockDim.x))
      sums[i / kElements][place(i % kElements)] = sum(partials, i / kElements, i % kElements);
  }

  /// Four rows of a token, summed over the blocks of the cluster.
  __device__ __forceinline__ float4 sum_of_cluster(const typename Strip::Sums* sums, int unit,
                                                   int element) const {
    const uint32_t at = shared_address(&sums[unit][place(element)]);
    float4 sum = load_from_block(at, 0);
    for (int block = 1; block < division.splits; ++block) {
      const float4 part = load_from_block(at, static_cast<uint32_t>(block));
      sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
    }
    return sum;
  }

  /// Writes this block's share of the sums that add_up() has left in all blocks of the cluster.
  __device__ __forceinline__ void write_share(const typename Strip::Sums* sums, int rank) const {
    const int fours = count / Strip::kMatrices * (kElements / 4);
    for (int i = static_cast<int>(threadIdx.x) * division.splits + rank; i < fours;
         i += static_cast<int>(blockDim.x) * division.splits) {
      const int of_round = i / (kElements / 4);
      const int element = i % (kElements / 4) * 4;
      const int token = element / kStripRows;
      const int row = strip(of_round) * kStripRows + element % kStripRows;
      if (token >= args.tokens) continue;
      const float4 four = sum_of_cluster(sums, Strip::kMatrices * of_round, element);
      const float values[4] = {four.x, four.y, four.z, four.w};
      float ups[4] = {};
      if constexpr (Strip::kMatrices == 2) {
        const float4 up = sum_of_cluster(sums, 2 * of_round + 1, element);
        ups[0] = up.x, ups[1] = up.y, ups[2] = up.z, ups[3] = up.w;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (row + j >= args.rows) break;
        if constexpr (Strip::kMatrices == 2) {
          store_output(args, token, row + j, output_of(args, row + j, values[j], ups[j]));
        } else {
          store_output(args, token, row + j, output_of(args, row + j, values[j]));
        }
      }
    }
  }
#endif
};

/// The work of block `block`.
template <DType type, int kMatrices>
__device__ __forceinline__ void run_tile_strips(const ProductArgs& args, const TileStripDivision& division,
                                                char* shared_bytes, int block, const Stamp& stamp) {
  using Strip = TileStrip<type, kMatrices>;
  constexpr int kStages = Strip::kStages;
  auto& shared = *reinterpret_cast<typename Strip::Shared*>(shared_bytes);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int set = warp / division.warps;
  const int cluster = block / division.splits;
  const int rank = block % division.splits;
  const int tiles = (args.cols + kTileCols - 1) / kTileCols;
  const int strips = (args.rows + kStripRows - 1) / kStripRows;
  const int units = (strips - cluster + division.clusters - 1) / division.clusters * kMatrices;
  const int first = rank * division.chunks + warp % division.warps;
  const int end = min(tiles, (rank + 1) * division.chunks);

  allow_next_kernel();
  TileStripWalk next{first < end ? set : units, first};
  const auto copy_next = [&](char* slot) {
    if (next.unit < units) {
      const int strip = cluster + next.unit / kMatrices * division.clusters;
      copy_tile<type>(slot, next.unit % kMatrices == 0 ? args.weight : args.up, args.cols, strip, next.chunk,
                      lane);
      next.advance(division, first, end);
    }
    commit_copies();
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage)
    copy_next(shared.rings[warp][stage]);
  begin_kernel(stamp);

  TileStripX<type> x;
  int held = first;  // chunk of x
  if (first < end) {
    const auto row_of = [&](int token) {
      return static_cast<const __nv_bfloat16*>(args.x) + token * static_cast<int64_t>(args.x_stride);
    };
    x.template bring<sizeof(shared.partials[warp])>(row_of, args.tokens, args.cols, first,
                                                    reinterpret_cast<char*>(shared.partials[warp]), lane);
    x.convert(shared.biases[warp], lane);
  }
  int stage = 0;
  int parity = 0;
  int turn = 0;                        // the thread that begins to write
  [[maybe_unused]] int lap_units = 0;  // units whose sums the block has kept for its cluster
  const int round_units = Strip::kRound * division.sets;
#pragma unroll 1
  for (int begin = 0; begin < units; begin += round_units) {
#pragma unroll 1
    for (int i = 0; i < Strip::kRound && begin + i * division.sets + set < units; ++i) {
      float sums[1][1][4] = {};
#pragma unroll 1
      for (int chunk = first; chunk < end; chunk += division.warps) {
        if (chunk != held) {
          x.load(args, chunk, lane);
          x.convert(shared.biases[warp], lane);
          held = chunk;
        }
        char* slot = shared.rings[warp][stage];
        wait_for_copies<kStages - 1>();
        __syncwarp();
        const TileRegisters<type> tiles[1] = {TileRegisters<type>(slot, lane)};
        __syncwarp();
        copy_next(slot);
        multiply_tiles<type>(sums, tiles, StripXInRegisters<type>{x, shared.biases[warp], lane});
        stage = stage + 1 == kStages ? 0 : stage + 1;
      }
#pragma unroll
      for (int j = 0; j < 4; ++j)
        shared.partials[warp][parity % Strip::kBuffers][i][(2 * (lane % 4) + j % 2) * Strip::kTokenStride +
                                                           lane / 4 + 8 * (j / 2)] = sums[0][0][j];
    }
    __syncthreads();
    const TileStripRound<Strip> round{args, division, cluster + begin / kMatrices * division.clusters,
                                      min(units - begin, round_units)};
#if __CUDA_ARCH__ >= 900
    if (division.splits > 1) {
      round.add_up(&shared.partials[0][parity % Strip::kBuffers], shared.sums + lap_units);
      lap_units += round.count;
      if (lap_units == Strip::kLap * Strip::kRound || begin + round.count == units) {
        const TileStripRound<Strip> lap{
            args, division, cluster + (begin + round.count - lap_units) / kMatrices * division.clusters,
            lap_units};
        meet_cluster();
        lap.write_share(shared.sums, rank);
        meet_cluster();  // others have read this block's sums
        lap_units = 0;
      }
    }
#endif
    if (division.splits == 1) {
      round.write(&shared.partials[0][parity % Strip::kBuffers], turn);
      turn += round.count / kMatrices * kStripRows * args.tokens;
    }
    if constexpr (Strip::kBuffers == 1) __syncthreads();
    parity ^= 1;
  }
}

template <DType type, int kMatrices>
__global__ void __launch_bounds__(TileStrip<type, kMatrices>::kWarps * 32, 1)
    tile_strip_kernel(const __grid_constant__ ProductArgs args,
                      const __grid_constant__ TileStripDivision division, Stamp stamp) {
  extern __shared__ __align__(128) char shared_bytes[];
  run_tile_strips<type, kMatrices>(args, division, shared_bytes, static_cast<int>(blockIdx.x), stamp);
}

template <DType type, int kMatrices>
void launch_tile_strips(Launch& launch, const ProductArgs& args) {
  using Strip = TileStrip<type, kMatrices>;
  using Shared = typename Strip::Shared;
  const TileStripDivision division = tile_strip_division(
      strips_of(args.rows), tiles_of(args.cols), Strip::kWarps, launch.num_sms(), launches_start_early());
  const int32_t blocks = division.splits * division.clusters;
  launch.reads_ahead(blocks * static_cast<int64_t>(sizeof(Shared::rings)))
      .in_clusters(division.splits)(kMatrices == 2 ? "strip_gate_up" : "strip_product",
                                    tile_strip_kernel<type, kMatrices>, static_cast<unsigned>(blocks),
                                    static_cast<unsigned>(32 * division.warps * division.sets),
                                    sizeof(Shared), args, division);
}

}  // namespace minfer::cuda
