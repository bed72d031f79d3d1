#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/panel_kernels.h"
#include "kernels/cuda/panel_loop.cuh"

// bf16 weights with 1 to 16 tokens (the frame is in panel_loop.cuh).
//
// Weights are the A operand, tokens B's columns. A lane reads 16 bytes of rows g and g + 8 at a time, columns
// 8 t ... 8 t + 7 of 32, as two mma's worth, and x in the same order, so nothing is repacked. Tokens that a
// tile of eight lacks repeat the last one.
//
// Bytes: the weights once, 2 rows cols. K is a multiple of 8.
namespace minfer::cuda {
namespace {

template <int kTokenTiles, int kWarps_, int kStages_>
struct Bf16Multiplier {
  static constexpr int kWarps = kWarps_;
  static constexpr int kStages = kStages_;
  static constexpr int kChunkCols = 64;
  static constexpr int kChunkBytes = kPanelRows * kChunkCols * 2;
  static constexpr int kColumns = 8 * kTokenTiles;

  /// Where the eight columns 8 i ... of a row lie in a chunk: the rows that a quarter of a warp reads at a
  /// time are in different banks.
  static __device__ __forceinline__ int offset(int row, int i) {
    return 128 * row + 16 * (i ^ 4 * (row % 2));
  }

  static __device__ __forceinline__ void copy(char* slot, const PanelArgs& args, int matrix, int panel,
                                              int index, int lane) {
    const auto* base = static_cast<const __nv_bfloat16*>(matrix == 0 ? args.weight : args.up);
    const int k = index * kChunkCols + 8 * (lane % 8);
#pragma unroll
    for (int i = 0; i < kPanelRows / 4; ++i) {
      const int row = lane / 8 + 4 * i;
      const int64_t in_matrix = min(panel * kPanelRows + row, args.rows - 1);
      copy_async16(slot + offset(row, lane % 8), base + (k < args.cols ? in_matrix * args.cols + k : 0),
                   k < args.cols);
    }
  }

  __device__ __forceinline__ void multiply(const char* slot, const PanelArgs& args, int index, int lane) {
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      const int i = 4 * step + lane % 4;
      const uint4 low = *reinterpret_cast<const uint4*>(slot + offset(lane / 4, i));
      const uint4 high = *reinterpret_cast<const uint4*>(slot + offset(lane / 4 + 8, i));
      const uint32_t first[4] = {low.x, high.x, low.y, high.y};
      const uint32_t second[4] = {low.z, high.z, low.w, high.w};
      const int k = index * kChunkCols + 8 * i;
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; ++tile) {
        const int token = min(8 * tile + lane / 4, args.tokens - 1);
        const auto* row = static_cast<const __nv_bfloat16*>(args.x) + token * args.x_stride;
        const uint4 x = k < args.cols ? *reinterpret_cast<const uint4*>(row + k) : uint4{};
        mma_bf16(sums[tile], first, x.x, x.y);
        mma_bf16(sums[tile], second, x.z, x.w);
      }
    }
  }

  __device__ __forceinline__ void store(float* partials, int lane) {
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int column = 8 * tile + 2 * (lane % 4) + i % 2;
        partials[column * kPanelRows + lane / 4 + 8 * (i / 2)] = sums[tile][i];
        sums[tile][i] = 0.0f;
      }
    }
  }

  float sums[kTokenTiles][4] = {};
};

}  // namespace

void bf16_panel_product(Launch& launch, const PanelArgs& args) {
  const auto run = [&](auto multiplier) {
    using Multiplier = decltype(multiplier);
    args.up != nullptr ? launch_panels<Multiplier, 2>(launch, args)
                       : launch_panels<Multiplier, 1>(launch, args);
  };
  args.tokens <= 8 ? run(Bf16Multiplier<1, 16, 2>{}) : run(Bf16Multiplier<2, 8, 4>{});
}

}  // namespace minfer::cuda
