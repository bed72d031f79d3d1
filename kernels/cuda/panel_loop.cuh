#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/panel_output.cuh"
#include "kernels/cuda/weight_layout.h"

/// The frame of the kernels that stream weights past a few tokens.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or silu(Wg x) * (Wu x) with gate and up rows in
/// one thread block.
///
/// One thread block an SM takes panels of 16 rows in turn: block b those with index b, b + blocks, ... Their
/// chunks of K, one panel after the other, go round the block's warps, so that all have the same work for any
/// K. Each warp keeps the next kStages chunks on their way into its own part of shared memory (cp.async):
/// that is what keeps the memory busy, across the ends of panels and, for the first chunks, before
/// begin_kernel(): weights depend on no kernel before. x comes through the L1, where it stays. The warps'
/// sums of a panel meet in shared memory and are added in one order.
///
/// A block takes less than half of an SM, so that the next product's first chunks are already coming while
/// this one ends: allow_next_kernel() is the first thing a block does.
///
/// A Multiplier is one warp's part: kWarps, kStages, kChunkCols, kChunkBytes, kColumns (tokens),
///   static void copy(char* slot, args, matrix, panel, chunk, lane)    begins the copy of a chunk
///   void multiply(const char* slot, args, chunk, lane)                adds to its sums
///   void store(float* partials [kColumns][16], lane)                  writes its sums and clears them
namespace minfer::cuda {

/// A chunk of a panel of a matrix.
struct PanelWalk {
  int panel;
  int matrix;
  int chunk;

  /// To the chunk `distance` further on.
  __device__ __forceinline__ void advance(int distance, int chunks, int matrices) {
    chunk += distance;
    while (chunk >= chunks) {
      chunk -= chunks;
      if (++matrix < matrices) continue;
      matrix = 0;
      panel += gridDim.x;
    }
  }
};

template <class Multiplier, int kMatrices>
using PanelPartials = float[kMatrices][Multiplier::kWarps][Multiplier::kColumns * kPanelRows];

/// Shared memory of panel_kernel: the warps' rings of chunks, then the partial sums of two panels, so that
/// one barrier a panel is enough.
template <class Multiplier, int kMatrices>
struct PanelShared {
  alignas(128) char rings[Multiplier::kWarps][Multiplier::kStages][Multiplier::kChunkBytes];
  PanelPartials<Multiplier, kMatrices> partials[2];
};

/// The sum over the warps of element i of a panel: token i / 16, row i % 16.
template <int kWarps, int kElements>
__device__ __forceinline__ float sum_of_warps(const float (&partials)[kWarps][kElements], int i) {
  float sum = partials[0][i];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    sum += partials[warp][i];
  return sum;
}

template <class Multiplier, int kMatrices>
__device__ __forceinline__ void finish_panel(const PanelArgs& args, int panel,
                                             const PanelPartials<Multiplier, kMatrices>& partials) {
  for (int i = threadIdx.x; i < kPanelRows * args.tokens; i += Multiplier::kWarps * 32) {
    const int row = panel * kPanelRows + i % kPanelRows;
    if (row >= args.rows) continue;
    float value = sum_of_warps(partials[0], i);
    if constexpr (kMatrices == 2) value = value / (1.0f + __expf(-value)) * sum_of_warps(partials[1], i);
    store_output(args, i / kPanelRows, row, value);
  }
}

template <class Multiplier, int kMatrices>
__global__ void __launch_bounds__(Multiplier::kWarps * 32, 2)
    panel_kernel(const __grid_constant__ PanelArgs args, Stamp stamp) {
  constexpr int kWarps = Multiplier::kWarps;
  constexpr int kStages = Multiplier::kStages;
  extern __shared__ __align__(128) char shared_bytes[];
  auto& shared = *reinterpret_cast<PanelShared<Multiplier, kMatrices>*>(shared_bytes);
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int panels = (args.rows + kPanelRows - 1) / kPanelRows;
  const int chunks = (args.cols + Multiplier::kChunkCols - 1) / Multiplier::kChunkCols;

  allow_next_kernel();
  PanelWalk next{static_cast<int>(blockIdx.x), 0, 0};
  next.advance(warp, chunks, kMatrices);
  const auto copy_next = [&](char* slot) {
    if (next.panel < panels) Multiplier::copy(slot, args, next.matrix, next.panel, next.chunk, lane);
    commit_copies();
    next.advance(kWarps, chunks, kMatrices);
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage)
    copy_next(shared.rings[warp][stage]);
  begin_kernel(stamp);

  Multiplier multiplier;
  PanelWalk now{static_cast<int>(blockIdx.x), 0, 0};
  now.advance(warp, chunks, kMatrices);
  int stage = 0;
  int parity = 0;
  for (int panel = blockIdx.x; panel < panels; panel += gridDim.x) {
#pragma unroll 1
    for (int matrix = 0; matrix < kMatrices; ++matrix) {
      while (now.panel == panel && now.matrix == matrix) {
        char* slot = shared.rings[warp][stage];
        wait_for_copies<kStages - 1>();
        __syncwarp();
        multiplier.multiply(slot, args, now.chunk, lane);
        __syncwarp();
        copy_next(slot);
        stage = stage + 1 == kStages ? 0 : stage + 1;
        now.advance(kWarps, chunks, kMatrices);
      }
      multiplier.store(shared.partials[parity][matrix][warp], lane);
    }
    __syncthreads();
    finish_panel<Multiplier, kMatrices>(args, panel, shared.partials[parity]);
    parity ^= 1;
  }
}

/// One thread block an SM.
template <class Multiplier, int kMatrices>
void launch_panels(Launch& launch, const PanelArgs& args) {
  static_assert(sizeof(PanelShared<Multiplier, kMatrices>) <= 113 << 10, "two blocks an SM");
  const int panels = (args.rows + kPanelRows - 1) / kPanelRows;
  launch(kMatrices == 2 ? "panel_gate_up" : "panel_product", panel_kernel<Multiplier, kMatrices>,
         static_cast<unsigned>(panels < launch.num_sms() ? panels : launch.num_sms()),
         Multiplier::kWarps * 32, sizeof(PanelShared<Multiplier, kMatrices>), args);
}

}  // namespace minfer::cuda
