#pragma once

#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/product/panel_loop.cuh"
#include "kernels/cuda/product/tile_fragments.cuh"

/// Quantised weights with one token (the frame is in panel_loop.cuh).
///
/// With one token seven of B's eight columns would idle. So column n of B holds x for the n-th of eight
/// groups of a tile alone and zeros elsewhere: after the sixteen mma's of a tile, C's column n is the sum of
/// group n, and each lane scales the two groups of two rows that it holds, with the scales that it holds.
/// Nothing is scaled twice. Types with a scale for 16 columns have sixteen groups of them: two C's.
///
/// The sum of x over each group takes the bias of the operands off (it is C's first value) and the minima.
/// Decoding costs 7 instructions per 8 elements of a lane with four bits.
namespace minfer::cuda {

/// What fits into the shared memory that a block may have.
inline constexpr int kVectorWarps = kHasSmallBlocks ? 8 : 16;
template <DType type>
inline constexpr int kVectorStages = type == DType::q6_k || Tile<type>::kHasBytes ? 2 : 3;

template <DType type, int kWarps_, int kStages_>
struct TileVectorMultiplier {
  static constexpr int kChunkCols = kTileCols;
  static constexpr int kColumns = 1;
  static constexpr int kStages = kStages_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kChunkBytes = Tile<type>::kBytes;
  static constexpr bool kSixteens = Tile<type>::kScaleCols == 16;  ///< a scale for every 16 columns, not 32
  static constexpr int kSums = kSixteens ? 2 : 1;
  static constexpr bool kSumsX = kBias<type> != 0.0f;

  using Chunk = TileRegisters<type>;

  static __device__ __forceinline__ void copy(char* slot, const PanelArgs& args, int matrix, int panel,
                                              int index, int lane) {
    copy_tile<type>(slot, matrix == 0 ? args.weight : args.up, args.cols, panel, index, lane);
  }

  /// x of lane 4 g + t: its columns of both halves of group g, or of groups g and g + 8 of 16.
  static __device__ __forceinline__ void load_x(const PanelArgs& args, int index, int lane, uint2 (&x)[2]) {
    const int k = index * kTileCols + (kSixteens ? 16 : 32) * (lane / 4) + 2 * (lane % 4);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = k + i * (kSixteens ? 128 : 16);
      x[i] = at < args.cols ? x_operand(static_cast<const __nv_bfloat16*>(args.x) + at) : uint2{};
    }
  }

  static __device__ __forceinline__ float sum_of(uint2 x) {
    const float2 a = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(x.x));
    const float2 b = __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(x.y));
    return (a.x + a.y) + (b.x + b.y);
  }

  /// From sums of the groups that the quads hold to those of groups 2 t and 2 t + 1 of all lanes.
  static __device__ __forceinline__ float2 sums_of_groups(float sum, int lane) {
    sum = group_sum(sum);
    return {__shfl_sync(0xffffffffu, sum, 8 * (lane % 4)), __shfl_sync(0xffffffffu, sum, 8 * (lane % 4) + 4)};
  }

  /// Takes up the x of a chunk, unless it is that of the last one: with 4,096 columns and 16 warps it always
  /// is.
  __device__ __forceinline__ void take_x(const PanelArgs& args, int index, int lane) {
    if (index == held_index) return;
    held_index = index;
    load_x(args, index, lane, x);
    if constexpr (kSumsX) {
#pragma unroll
      for (int s = 0; s < kSums; ++s)
        x_sums[s] = sums_of_groups(kSixteens ? sum_of(x[s]) : sum_of(x[0]) + sum_of(x[1]), lane);
    }
  }

  __device__ __forceinline__ void multiply(const Chunk& tile, const PanelArgs& args, int index, int lane) {
    take_x(args, index, lane);
    // Two sums, so that an mma does not wait for the last: of the halves of all groups, or (kSixteens) of the
    // first and the last eight groups.
    float c[2][4] = {};
    if constexpr (kSumsX) {
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
        c[s][0] = c[s][2] = -kBias<type> * x_sums[s].x;
        c[s][1] = c[s][3] = -kBias<type> * x_sums[s].y;
      }
    }
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int i = kSixteens ? j / 2 + 8 * (j % 2) : j;
      uint32_t a[4];
      tile_operand<type, false>(tile, i, a);
      const int half = j % 2;
      const bool mine = lane / 4 == j / 2;
      multiply_add<__nv_bfloat16>(c[half], a, mine ? x[half].x : 0u, mine ? x[half].y : 0u);
    }
    const TileScales<type> scales(tile);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        if constexpr (kSixteens) {
          sums[row] = fmaf(scales.scale[row][j], c[0][2 * row + j], sums[row]);
          sums[row] = fmaf(scales.scale[row][2 + j], c[1][2 * row + j], sums[row]);
        } else {
          sums[row] = fmaf(scales.scale[row][j], c[0][2 * row + j] + c[1][2 * row + j], sums[row]);
        }
        if constexpr (Tile<type>::kHasMinima) {
#pragma unroll
          for (int s = 0; s < kSums; ++s)
            sums[row] = fmaf(-scales.min[row][2 * s + j], j == 0 ? x_sums[s].x : x_sums[s].y, sums[row]);
        }
      }
    }
  }

  __device__ __forceinline__ void store(float* partials, int lane) {
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const float sum = group_sum(sums[row]);
      if (lane % 4 == 0) partials[lane / 4 + 8 * row] = sum;
      sums[row] = 0.0f;
    }
  }

  float sums[2] = {};
  int held_index = -1;
  uint2 x[2];
  float2 x_sums[kSums];
};

}  // namespace minfer::cuda
