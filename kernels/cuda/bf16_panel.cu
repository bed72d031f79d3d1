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

template <int kTokenTiles>
struct Bf16Multiplier {
  static constexpr int kSteps = 2;  ///< of 32 columns
  static constexpr int kChunkCols = 32 * kSteps;
  static constexpr int kColumns = 8 * kTokenTiles;
  static constexpr int kStages = 3;
  static constexpr int kBlocksPerSm = 3;

  struct Chunk {
    uint4 rows[kSteps][2];  ///< g and g + 8
  };

  static __device__ __forceinline__ void load(Chunk& chunk, const PanelArgs& args, int matrix, int panel,
                                              int index, int lane) {
    const auto* base = static_cast<const __nv_bfloat16*>(matrix == 0 ? args.weight : args.up);
    const int row = panel * kPanelRows + lane / 4;
    const __nv_bfloat16* rows[2] = {base + static_cast<int64_t>(min(row, args.rows - 1)) * args.cols,
                                    base + static_cast<int64_t>(min(row + 8, args.rows - 1)) * args.cols};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int k = index * kChunkCols + 32 * step + 8 * (lane % 4);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        chunk.rows[step][i] = k < args.cols ? stream_load16(rows[i] + k) : uint4{};
      }
    }
  }

  __device__ __forceinline__ void multiply(const Chunk& chunk, const PanelArgs& args, int index, int lane) {
    uint4 x[kTokenTiles][kSteps];
#pragma unroll
    for (int tile = 0; tile < kTokenTiles; ++tile) {
      const int token = min(8 * tile + lane / 4, args.tokens - 1);
      const auto* row = static_cast<const __nv_bfloat16*>(args.x) + token * args.x_stride;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int k = index * kChunkCols + 32 * step + 8 * (lane % 4);
        x[tile][step] = k < args.cols ? *reinterpret_cast<const uint4*>(row + k) : uint4{};
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const uint4& low = chunk.rows[step][0];
      const uint4& high = chunk.rows[step][1];
      const uint32_t first[4] = {low.x, high.x, low.y, high.y};
      const uint32_t second[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
      for (int tile = 0; tile < kTokenTiles; ++tile) {
        mma_bf16(sums[tile], first, x[tile][step].x, x[tile][step].y);
        mma_bf16(sums[tile], second, x[tile][step].z, x[tile][step].w);
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
  const bool gate_up = args.up != nullptr;
  if (args.tokens <= 8) {
    gate_up ? launch_panels<Bf16Multiplier<1>, 2>(launch, args)
            : launch_panels<Bf16Multiplier<1>, 1>(launch, args);
  } else {
    gate_up ? launch_panels<Bf16Multiplier<2>, 2>(launch, args)
            : launch_panels<Bf16Multiplier<2>, 1>(launch, args);
  }
}

}  // namespace minfer::cuda
