#pragma once

#include "kernels/cuda/element.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/panel_product.h"
#include "kernels/cuda/weight_layout.h"

/// The frame of the kernels that stream weights past a few tokens.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or silu(Wg x) * (Wu x) with gate and up rows in
/// one thread block.
///
/// A persistent thread block takes panels of 16 rows in turn. Its eight warps share K: chunk c of a panel is
/// warp c % 8's, and the eight partial sums of a panel meet in shared memory, in one order. Each warp keeps
/// kStages chunks of weights in registers, loaded across the ends of panels and, for the first ones, before
/// begin_kernel(): weights depend on no kernel before. x comes through the L1, where it stays.
///
/// A Multiplier is one warp's part: Chunk (registers), kChunkCols, kColumns (tokens), kStages,
///   static void load(Chunk&, args, matrix, panel, chunk, lane)
///   void multiply(const Chunk&, args, chunk, lane)            adds to its sums
///   void store(float* partials [kColumns][16], lane)          writes its sums and clears them
namespace minfer::cuda {

inline constexpr int kPanelWarps = 8;

/// Where a warp stands: step s of a matrix's panel is chunk 8 s + warp.
struct PanelCursor {
  int panel;
  int matrix = 0;
  int step = 0;
};

template <int kColumns, int kMatrices>
using PanelPartials = float[kMatrices][kPanelWarps][kColumns * kPanelRows];

/// The sum over the warps of element i of a panel: token i / 16, row i % 16.
template <int kElements>
__device__ __forceinline__ float sum_of_warps(const float (&partials)[kPanelWarps][kElements], int i) {
  float sum = partials[0][i];
#pragma unroll
  for (int warp = 1; warp < kPanelWarps; ++warp)
    sum += partials[warp][i];
  return sum;
}

template <int kColumns, int kMatrices>
__device__ __forceinline__ void finish_panel(const PanelArgs& args, int panel,
                                             const PanelPartials<kColumns, kMatrices>& partials) {
  for (int i = threadIdx.x; i < kPanelRows * args.tokens; i += kPanelWarps * 32) {
    const int row = panel * kPanelRows + i % kPanelRows;
    if (row >= args.rows) continue;
    float value = sum_of_warps(partials[0], i);
    if constexpr (kMatrices == 2) value = value / (1.0f + __expf(-value)) * sum_of_warps(partials[1], i);
    if (args.bias != nullptr) value += args.bias[row];
    const int64_t at = static_cast<int64_t>(i / kPanelRows) * args.out_stride + row;
    if (args.out_is_f32) {
      auto* out = static_cast<float*>(args.out) + at;
      *out = args.add_to_out ? *out + value : value;
    } else {
      static_cast<__nv_bfloat16*>(args.out)[at] = from_f32<__nv_bfloat16>(value);
    }
  }
}

/// Shared memory of panel_kernel: the partial sums of two panels, so that one barrier a panel is enough.
template <class Multiplier, int kMatrices>
constexpr size_t kPanelSharedBytes = 2 * sizeof(PanelPartials<Multiplier::kColumns, kMatrices>);

template <class Multiplier, int kMatrices>
__global__ void __launch_bounds__(kPanelWarps * 32, Multiplier::kBlocksPerSm)
    panel_kernel(const __grid_constant__ PanelArgs args, Stamp stamp) {
  using Partials = PanelPartials<Multiplier::kColumns, kMatrices>;
  extern __shared__ float shared[];
  auto* partials = reinterpret_cast<Partials*>(shared);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int panels = (args.rows + kPanelRows - 1) / kPanelRows;
  const int chunks = (args.cols + Multiplier::kChunkCols - 1) / Multiplier::kChunkCols;
  const int steps = (chunks + kPanelWarps - 1) / kPanelWarps;

  typename Multiplier::Chunk ring[Multiplier::kStages];
  PanelCursor next{static_cast<int>(blockIdx.x)};
  const auto load_next = [&](typename Multiplier::Chunk& chunk) {
    const int index = next.step * kPanelWarps + warp;
    if (next.panel < panels && index < chunks) {
      Multiplier::load(chunk, args, next.matrix, next.panel, index, lane);
    }
    if (++next.step < steps) return;
    next.step = 0;
    if (++next.matrix < kMatrices) return;
    next.matrix = 0;
    next.panel += gridDim.x;
  };
#pragma unroll
  for (auto& chunk : ring)
    load_next(chunk);
  begin_kernel(stamp);
  allow_next_kernel();

  Multiplier multiplier;
  PanelCursor now{static_cast<int>(blockIdx.x)};
  int parity = 0;
  while (now.panel < panels) {
#pragma unroll
    for (auto& chunk : ring) {
      if (now.panel >= panels) break;
      const int index = now.step * kPanelWarps + warp;
      if (index < chunks) multiplier.multiply(chunk, args, index, lane);
      load_next(chunk);
      if (++now.step < steps) continue;
      now.step = 0;
      multiplier.store(partials[parity][now.matrix][warp], lane);
      if (++now.matrix < kMatrices) continue;
      now.matrix = 0;
      __syncthreads();
      finish_panel<Multiplier::kColumns, kMatrices>(args, now.panel, partials[parity]);
      parity ^= 1;
      now.panel += gridDim.x;
    }
  }
}

/// One wave of thread blocks.
template <class Multiplier, int kMatrices>
void launch_panels(Launch& launch, const PanelArgs& args) {
  const int panels = (args.rows + kPanelRows - 1) / kPanelRows;
  const int slots = launch.num_sms() * Multiplier::kBlocksPerSm;
  launch(kMatrices == 2 ? "panel_gate_up" : "panel_product", panel_kernel<Multiplier, kMatrices>,
         static_cast<unsigned>(panels < slots ? panels : slots), kPanelWarps * 32,
         kPanelSharedBytes<Multiplier, kMatrices>, args);
}

}  // namespace minfer::cuda
