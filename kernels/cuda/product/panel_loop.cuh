#pragma once

#include <algorithm>

#include "kernels/cuda/device/async_copy.cuh"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/block_shared.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/team.cuh"
#include "kernels/cuda/device/warp.cuh"
#include "kernels/cuda/product/panel_output.cuh"
#include "kernels/cuda/weights/weight_layout.h"

/// The frame of the kernels that stream weights past a few tokens.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or activation(Wg x + bg, Wu x + bu) with gate and up
/// rows in one thread block.
///
/// One thread block an SM takes panels of 16 rows in turn: block b those with index b, b + blocks, ... Their
/// chunks of K, one panel after the other, go round the block's warps, so that all have the same work for any
/// K. Each warp keeps the next kStages chunks on their way into its own part of shared memory (cp.async):
/// that is what keeps the memory busy, across the ends of panels and, for the first chunks, before
/// begin_kernel(): weights depend on no kernel before. x is brought to shared memory first, one token as operands, several as rows: a
/// load through the L1 would come in its turn, behind the copies of weights that were begun before it. Where a block has no room for
/// the columns of several tokens, a team of two divides them: each block multiplies its half of the chunks of the team's panels, and
/// finishes half of the sums. The warps' sums of a panel meet in shared memory and are added in one order.
///
/// A block takes more than half of an SM's shared memory, so that every SM has one block of a product: a
/// second one on an SM, while others have none, would double the time of the whole. allow_next_kernel() is
/// the first thing a block does: as blocks end, those of the next product come and begin their copies, even
/// past a small kernel in between.
///
/// A norm in front of a product with one token costs no launch of its own: its factor is the same for all columns, so it comes to the
/// sums, and its weights to x.
///
/// Measured on one H200 with weights from memory: 96 % of a read's 4.53 TB/s for gate and up of Llama-3.1-8B
/// in bf16 with one token, 86 % for down, 70 % for the 32 MiB of the attention output.
///
/// A Multiplier is one warp's part: kWarps, kStages, kChunkCols, kChunkBytes, kColumns (tokens), Chunk: what
/// a warp has of a chunk in registers, constructed from (slot, lane),
///   static void copy(char* slot, args, matrix, panel, chunk, lane)    begins the copy of a chunk
///   kNorm: whether there is a norm in front; kBringsX and, if it is true,
///   static int64_t x_row_bytes(cols)                                  of a token in shared memory; 0: x is not to be brought
///   static void bring_x(args, char* x, first_col, cols, warp, lane)   brings a warp's share of these columns there
///   void multiply(const Chunk&, args, const char* x, chunk, lane)     adds to its sums; x null: not brought; else where column 0 would be
///   void store(float* partials [kColumns][16], lane)                  writes its sums and clears them
namespace minfer::cuda {

/// A chunk of a panel of a matrix.
struct PanelWalk {
  int panel;
  int matrix;
  int chunk;

  /// To the chunk `distance` further on; `blocks` take turns.
  __device__ __forceinline__ void advance(int distance, int chunks, int matrices, int blocks) {
    chunk += distance;
    while (chunk >= chunks) {
      chunk -= chunks;
      if (++matrix < matrices) continue;
      matrix = 0;
      panel += blocks;
    }
  }
};

/// The warps' sums of a panel.
template <class Multiplier, int kMatrices>
using PanelPartials = float[kMatrices][Multiplier::kWarps][Multiplier::kColumns * kPanelRows];

/// A little more than half of an H200's 227 KiB, or of 99.
inline constexpr size_t kHalfOfShared = kHasSmallBlocks ? 51 << 10 : 114 << 10;
inline constexpr size_t kMostShared = kNeededSharedBytes;

/// Panels between two barriers. With one column the sums are few, and a barrier for each panel would cost as
/// much as its products.
template <class Multiplier>
constexpr int kPanelsAtOnce = Multiplier::kColumns == 1 ? 2 : 1;

/// The chunks of a panel that a block of a team of kRanks multiplies.
struct ChunkShare {
  int first;
  int count;

  template <int kRanks>
  static __host__ __device__ ChunkShare of_rank(int chunks, int rank) {
    const int first = chunks * rank / kRanks;
    return {first, chunks * (rank + 1) / kRanks - first};
  }
};

/// Shared memory of panel_kernel: the warps' rings of chunks, then the sums between two barriers, twice, so
/// that one barrier is enough.
template <class Multiplier, int kMatrices>
struct PanelShared {
  alignas(128) char rings[Multiplier::kWarps][Multiplier::kStages][Multiplier::kChunkBytes];
  PanelPartials<Multiplier, kMatrices> partials[2][kPanelsAtOnce<Multiplier>];
  float squares[Multiplier::kWarps];  ///< sums of x^2, with a norm
};

/// A warp's share of the sum of x^2.
template <int kWarps>
__device__ __forceinline__ float squares_of_warp(const PanelArgs& args) {
  float sum = 0.0f;
  for (int k = 4 * static_cast<int>(threadIdx.x); k < args.cols; k += 4 * 32 * kWarps) {
    const float4 x = *reinterpret_cast<const float4*>(static_cast<const float*>(args.x) + k);
    sum = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, sum))));
  }
  return warp_sum(sum);
}

/// What a norm multiplies all columns by.
template <int kWarps>
__device__ __forceinline__ float norm_factor(const PanelArgs& args, const float (&squares)[kWarps]) {
  float sum = squares[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    sum += squares[warp];
  return 1.0f / sqrtf(sum / static_cast<float>(args.cols) + args.norm_eps);
}

/// The sum over the warps of element i of a panel: token i / 16, row i % 16.
template <int kWarps, int kElements>
__device__ __forceinline__ float sum_of_warps(const float (&partials)[kWarps][kElements], int i) {
  float sum = partials[0][i];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    sum += partials[warp][i];
  return sum;
}

/// Adds the sums of up to kPanelsAtOnce panels `panel`, panel + teams, ... and writes them times `factor`, a block every kRanks-th. The
/// warps take turns in it (`turn`): the others go on.
template <class Multiplier, int kMatrices, int kRanks>
__device__ __forceinline__ void finish_panels(
    const PanelArgs& args, int panel, int teams, int turn, float factor,
    PanelPartials<Multiplier, kMatrices> (&partials)[kPanelsAtOnce<Multiplier>]) {
  constexpr int kThreads = Multiplier::kWarps * 32;
  const int elements = kPanelRows * args.tokens;
  for (int i = kRanks * ((threadIdx.x + 32 * turn) % kThreads) + Team<kRanks>::rank();
       i < kPanelsAtOnce<Multiplier> * elements; i += kRanks * kThreads) {
    const int which = kPanelsAtOnce<Multiplier> == 1 ? 0 : i / elements;
    const int element = i - which * elements;
    const int row = (panel + which * teams) * kPanelRows + element % kPanelRows;
    if (row >= args.rows) continue;
    const auto sum = [&](int matrix) {
      float total = 0.0f;
#pragma unroll
      for (int rank = 0; rank < kRanks; ++rank)
        total += sum_of_warps(*Team<kRanks>::of_rank(&partials[which][matrix], rank), element);
      return factor * total;
    };
    float value = sum(0);
    if constexpr (kMatrices == 2) {
      value = output_of(args, row, value, sum(1));
    } else {
      value = output_of(args, row, value);
    }
    store_output(args, element / kPanelRows, row, value);
  }
}

/// What the block does in team `team` of `teams`.
template <class Multiplier, int kMatrices, int kRanks>
__device__ __forceinline__ void run_panels(const PanelArgs& args, char* shared_bytes, int team, int teams,
                                           const Stamp& stamp) {
  using Shared = PanelShared<Multiplier, kMatrices>;
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  constexpr int kWarps = Multiplier::kWarps;
  constexpr int kStages = Multiplier::kStages;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int panels = (args.rows + kPanelRows - 1) / kPanelRows;
  const auto share = ChunkShare::of_rank<kRanks>(
      (args.cols + Multiplier::kChunkCols - 1) / Multiplier::kChunkCols, Team<kRanks>::rank());

  allow_next_kernel();
  PanelWalk next{team, 0, 0};
  next.advance(warp, share.count, kMatrices, teams);
  const auto copy_next = [&](char* slot) {
    if (next.panel < panels)
      Multiplier::copy(slot, args, next.matrix, next.panel, share.first + next.chunk, lane);
    commit_copies();
    next.advance(kWarps, share.count, kMatrices, teams);
  };
#pragma unroll 1
  for (int stage = 0; stage < kStages; ++stage)
    copy_next(shared.rings[warp][stage]);
  if constexpr (Multiplier::kNorm) {
    for (int k = 32 * static_cast<int>(threadIdx.x); k < args.cols; k += 32 * 32 * kWarps)
      prefetch_to_l2(args.norm + k);
  }
  begin_kernel(stamp);

  char* x = nullptr;
  if constexpr (Multiplier::kBringsX) {
    if (args.x_row_bytes > 0) {
      x = shared_bytes + sizeof(Shared);
      const int first_col = share.first * Multiplier::kChunkCols;
      const int cols = min(share.count * Multiplier::kChunkCols, args.cols - first_col);
      Multiplier::bring_x(args, x, first_col, cols, warp, lane);
      x -= 2 * first_col;
    }
  }
  float factor = 1.0f;
  const auto bring_squares = [&] {
    const float squares = squares_of_warp<kWarps>(args);
    if (lane == 0) shared.squares[warp] = squares;
  };
  if (x != nullptr) {
    if constexpr (Multiplier::kNorm) bring_squares();
    __syncthreads();
    if constexpr (Multiplier::kNorm) factor = norm_factor(args, shared.squares);
  }

  Multiplier multiplier;
  PanelWalk now{team, 0, 0};
  now.advance(warp, share.count, kMatrices, teams);
  int stage = 0;
  int parity = 0;
  int turn = 0;
  for (int panel = team; panel < panels; panel += kPanelsAtOnce<Multiplier> * teams) {
#pragma unroll 1
    for (int i = 0; i < kPanelsAtOnce<Multiplier> * kMatrices; ++i) {
      const int which = i / kMatrices;
      const int matrix = i % kMatrices;
      const int current = panel + which * teams;
      if (current >= panels) break;
      while (now.panel == current && now.matrix == matrix) {
        char* slot = shared.rings[warp][stage];
        wait_for_copies<kStages - 1>();
        __syncwarp();
        const typename Multiplier::Chunk chunk(slot, lane);
        __syncwarp();
        copy_next(slot);
        multiplier.multiply(chunk, args, x, share.first + now.chunk, lane);
        stage = stage + 1 == kStages ? 0 : stage + 1;
        now.advance(kWarps, share.count, kMatrices, teams);
      }
      multiplier.store(shared.partials[parity][which][matrix][warp], lane);
    }
    const bool finds_factor = Multiplier::kNorm && x == nullptr && panel == team;  // now x is in the L1
    if (finds_factor) bring_squares();
    Team<kRanks>::sync();
    if (finds_factor) factor = norm_factor(args, shared.squares);
    finish_panels<Multiplier, kMatrices, kRanks>(args, panel, teams, turn, factor, shared.partials[parity]);
    parity ^= 1;
    turn += 2;
  }
  if constexpr (kRanks > 1) Team<kRanks>::sync();  // until then the other reads this block's sums
}

template <class Multiplier, int kMatrices, int kRanks>
__global__ void __launch_bounds__(Multiplier::kWarps * 32, 1)
    panel_kernel(const __grid_constant__ PanelArgs args, Stamp stamp) {
  extern __shared__ __align__(128) char shared_bytes[];
  run_panels<Multiplier, kMatrices, kRanks>(args, shared_bytes, Team<kRanks>::index(), Team<kRanks>::count(),
                                            stamp);
}

/// Shared memory of a block of a team of kRanks in which there is room for x, having set args.x_row_bytes; 0: there is none, or x is not to
/// be brought.
template <class Multiplier, int kMatrices, int kRanks>
size_t shared_bytes_with_x(PanelArgs& args) {
  if constexpr (Multiplier::kBringsX) {
    const int chunks = (args.cols + Multiplier::kChunkCols - 1) / Multiplier::kChunkCols;
    const int most_cols = std::min(args.cols, (chunks + kRanks - 1) / kRanks * Multiplier::kChunkCols);
    const int64_t row_bytes = Multiplier::x_row_bytes(most_cols);
    const size_t bytes =
        sizeof(PanelShared<Multiplier, kMatrices>) + static_cast<size_t>(args.tokens * row_bytes);
    if (row_bytes > 0 && bytes <= most_shared_bytes()) {
      args.x_row_bytes = static_cast<int32_t>(row_bytes);
      return bytes;
    }
  }
  return 0;
}

/// Of a block that is no part of a team.
template <class Multiplier, int kMatrices>
size_t panel_shared_bytes(PanelArgs& args) {
  const size_t bytes = shared_bytes_with_x<Multiplier, kMatrices, 1>(args);
  return std::max({bytes, sizeof(PanelShared<Multiplier, kMatrices>), kHalfOfShared});
}

/// One thread block an SM.
template <class Multiplier, int kMatrices>
void launch_panels(Launch& launch, PanelArgs args) {
  using Shared = PanelShared<Multiplier, kMatrices>;
  static_assert(sizeof(Shared) <= kMostShared);
  const int panels = (args.rows + kPanelRows - 1) / kPanelRows;
  const auto run = [&]<int kRanks>(std::integral_constant<int, kRanks>, size_t shared_bytes) {
    const int blocks = std::min(panels, launch.num_sms() / kRanks) * kRanks;
    launch.reads_ahead(blocks * static_cast<int64_t>(sizeof(Shared::rings)))
        .in_clusters(kRanks)(kMatrices == 2 ? "panel_gate_up" : "panel_product",
                             panel_kernel<Multiplier, kMatrices, kRanks>, static_cast<unsigned>(blocks),
                             Multiplier::kWarps * 32, shared_bytes, args);
  };
  const size_t alone = panel_shared_bytes<Multiplier, kMatrices>(args);
  if constexpr (Multiplier::kColumns > 1 && kMatrices == 1) {
    if (args.x_row_bytes == 0 && launches_start_early()) {
      const size_t bytes = shared_bytes_with_x<Multiplier, kMatrices, 2>(args);
      if (bytes > 0) return run(std::integral_constant<int, 2>{}, std::max(bytes, kHalfOfShared));
    }
  }
  run(std::integral_constant<int, 1>{}, alone);
}

}  // namespace minfer::cuda
