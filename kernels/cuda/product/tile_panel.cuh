#pragma once

#include "kernels/cuda/product/panel_loop.cuh"
#include "kernels/cuda/product/tile_fragments.cuh"

/// Quantised weights with 2 to 8 tokens (the frame is in panel_loop.cuh).
///
/// Tokens are B's columns; what eight lack repeats the last one. The mma's of one group of columns with one
/// scale make a sum of its own, which is then scaled in f32: weights are exact. A lane's scales are those of
/// two groups (TileScales), so they go round the four lanes that share its rows.
///
/// q4_k and q5_k also need the sum of x over each group: an mma with ones for weights leaves it where the
/// sums of the products are. It takes the minima off and with them the bias of the operands.
namespace minfer::cuda {

/// What fits into the shared memory that a block may have.
inline constexpr int kPanelStages = 2;
template <DType type>
inline constexpr int kPanelWarps = type == DType::q6_k || Tile<type>::kHasBytes ? (kHasSmallBlocks ? 8 : 12)
                                                                                : (kHasSmallBlocks ? 12 : 16);

template <DType type, int kWarps_, int kStages_>
struct TilePanelMultiplier {
  static constexpr int kChunkCols = kTileCols;
  static constexpr int kColumns = 8;
  static constexpr int kStages = kStages_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kChunkBytes = Tile<type>::kBytes;
  static constexpr bool kBringsX = false;
  static constexpr bool kNorm = false;
  static constexpr bool kHasMinima = Tile<type>::kHasMinima;
  static constexpr int kScaleCols = Tile<type>::kScaleCols;

  using Chunk = TileRegisters<type>;

  static __device__ __forceinline__ void copy(char* slot, const PanelArgs& args, int matrix, int panel,
                                              int index, int lane) {
    copy_tile<type>(slot, matrix == 0 ? args.weight : args.up, args.cols, panel, index, lane);
  }

  __device__ __forceinline__ void multiply(const Chunk& tile, const PanelArgs& args, const char* /*x*/,
                                           int index, int lane) {
    TileScales<type> scales(tile);
    if constexpr (kHasMinima) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          scales.min[row][j] = fmaf(kBias<type>, scales.scale[row][j], scales.min[row][j]);
      }
    }
    const int token = min(lane / 4, args.tokens - 1);
    const __nv_bfloat16* x = static_cast<const __nv_bfloat16*>(args.x) + token * args.x_stride +
                             index * kTileCols + 2 * (lane % 4);
    const int cols = args.cols - index * kTileCols;
    constexpr int kOperands = kScaleCols / 16;
#pragma unroll
    for (int group = 0; group < kTileCols / kScaleCols; ++group) {
      float c[4] = {};
      float x_sums[4] = {};
#pragma unroll
      for (int i = 0; i < kOperands; ++i) {
        uint32_t a[4];
        tile_operand<type, !kHasMinima>(tile, kOperands * group + i, a);
        const int k = kScaleCols * group + 16 * i;
        const uint2 b = k < cols ? x_operand(x + k) : uint2{};
        multiply_add<__nv_bfloat16>(c, a, b.x, b.y);
        constexpr uint32_t kOnes = 0x3f803f80u;
        if constexpr (kHasMinima) multiply_add<__nv_bfloat16>(x_sums, {kOnes, kOnes, kOnes, kOnes}, b.x, b.y);
      }
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float scale = of_group<type>(scales.scale[row], group);
        sums[2 * row] = fmaf(scale, c[2 * row], sums[2 * row]);
        sums[2 * row + 1] = fmaf(scale, c[2 * row + 1], sums[2 * row + 1]);
        if constexpr (kHasMinima) {
          const float min = of_group<type>(scales.min[row], group);
          sums[2 * row] = fmaf(-min, x_sums[0], sums[2 * row]);
          sums[2 * row + 1] = fmaf(-min, x_sums[1], sums[2 * row + 1]);
        }
      }
    }
  }

  __device__ __forceinline__ void store(float* partials, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      partials[(2 * (lane % 4) + i % 2) * kPanelRows + lane / 4 + 8 * (i / 2)] = sums[i];
      sums[i] = 0.0f;
    }
  }

  float sums[4] = {};
};

}  // namespace minfer::cuda
