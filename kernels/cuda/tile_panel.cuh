#pragma once

#include "kernels/cuda/panel_loop.cuh"
#include "kernels/cuda/tile_fragments.cuh"

/// Quantised weights with 2 to 16 tokens (the frame is in panel_loop.cuh).
///
/// Tokens are B's columns; tokens that a tile of eight lacks repeat the last one. The mma's of one group of
/// columns with one scale make a sum of its own, which is then scaled in f32: weights are exact. A lane's
/// scales are those of two groups (TileScales), so they go round the four lanes that share its rows.
///
/// q4_k and q5_k also need the sum of x over each group: an mma with ones for weights leaves it where the
/// sums of the products are. It takes the minima off and with them the bias of the operands.
namespace minfer::cuda {

template <DType type, int kTokenTiles, int kWarps_, int kStages_>
struct TilePanelMultiplier {
  static constexpr int kChunkCols = kTileCols;
  static constexpr int kColumns = 8 * kTokenTiles;
  static constexpr int kStages = kStages_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kChunkBytes = Tile<type>::kBytes;
  static constexpr bool kHasMinima = Tile<type>::kHasMinima;
  static constexpr int kScaleCols = type == DType::q6_k ? 16 : 32;

  static __device__ __forceinline__ void copy(char* slot, const PanelArgs& args, int matrix, int panel,
                                              int index, int lane) {
    copy_tile<type>(slot, matrix == 0 ? args.weight : args.up, args.cols, panel, index, lane);
  }

  /// The scale of group `group` of rows g and g + 8, from the lane that has it.
  static __device__ __forceinline__ float of_group(const float (&held)[TileScales<type>::kCount], int group) {
    const int index = type == DType::q6_k ? group / 8 * 2 + group % 2 : group % 2;
    return __shfl_sync(0xffffffffu, held[index], group % 8 / 2, 4);
  }
  static __device__ __forceinline__ float of_group_32(const float (&held)[2], int group) {
    return __shfl_sync(0xffffffffu, held[group % 2], group / 2, 4);
  }

  __device__ __forceinline__ void multiply(const char* slot, const PanelArgs& args, int index, int lane) {
    const TileRegisters<type> tile(slot, lane);
    TileScales<type> scales(tile);
    if constexpr (kHasMinima) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          scales.min[row][j] = fmaf(kBias<type>, scales.scale[row][j], scales.min[row][j]);
      }
    }
    const __nv_bfloat16* x[kTokenTiles];
#pragma unroll
    for (int tokens = 0; tokens < kTokenTiles; ++tokens) {
      const int token = min(8 * tokens + lane / 4, args.tokens - 1);
      x[tokens] = static_cast<const __nv_bfloat16*>(args.x) + token * args.x_stride + index * kTileCols +
                  4 * (lane % 4);
    }
    const int cols = args.cols - index * kTileCols;
    constexpr int kOperands = kScaleCols / 16;
#pragma unroll
    for (int group = 0; group < kTileCols / kScaleCols; ++group) {
      uint32_t a[kOperands][4];
#pragma unroll
      for (int i = 0; i < kOperands; ++i)
        tile_operand<type, !kHasMinima>(tile, kOperands * group + i, a[i]);
      const float scale[2] = {of_group(scales.scale[0], group), of_group(scales.scale[1], group)};
      float min[2] = {};
      if constexpr (kHasMinima) {
        min[0] = of_group_32(scales.min[0], group);
        min[1] = of_group_32(scales.min[1], group);
      }
#pragma unroll
      for (int tokens = 0; tokens < kTokenTiles; ++tokens) {
        float c[4] = {};
        float x_sums[4] = {};
#pragma unroll
        for (int i = 0; i < kOperands; ++i) {
          const int k = kScaleCols * group + 16 * i;
          const uint2 b = k < cols ? *reinterpret_cast<const uint2*>(x[tokens] + k) : uint2{};
          mma_bf16(c, a[i], b.x, b.y);
          constexpr uint32_t kOnes = 0x3f803f80u;
          if constexpr (kHasMinima) mma_bf16(x_sums, {kOnes, kOnes, kOnes, kOnes}, b.x, b.y);
        }
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sums[tokens][j] = fmaf(scale[j / 2], c[j], sums[tokens][j]);
          if constexpr (kHasMinima) sums[tokens][j] = fmaf(-min[j / 2], x_sums[j % 2], sums[tokens][j]);
        }
      }
    }
  }

  __device__ __forceinline__ void store(float* partials, int lane) {
#pragma unroll
    for (int tokens = 0; tokens < kTokenTiles; ++tokens) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * tokens + 2 * (lane % 4) + i % 2;
        partials[column * kPanelRows + lane / 4 + 8 * (i / 2)] = sums[tokens][i];
        sums[tokens][i] = 0.0f;
      }
    }
  }

  float sums[kTokenTiles][4] = {};
};

template <DType type, int kWarps, int kStages, int kStagesOfTwoTiles>
void run_tile_panel(Launch& launch, const PanelArgs& args) {
  const auto run = [&](auto multiplier) {
    using Multiplier = decltype(multiplier);
    args.up != nullptr ? launch_panels<Multiplier, 2>(launch, args)
                       : launch_panels<Multiplier, 1>(launch, args);
  };
  args.tokens <= 8 ? run(TilePanelMultiplier<type, 1, kWarps, kStages>{})
                   : run(TilePanelMultiplier<type, 2, kWarps, kStagesOfTwoTiles>{});
}

}  // namespace minfer::cuda
