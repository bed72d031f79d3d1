#pragma once

#include <algorithm>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/block_shared.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/strip/strip_output.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/weights/weight_layout.h"

/// The frame of the kernels that stream weights for few tokens.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or activation(Wg x + bg, Wu x + bu) with gate and up
/// rows in one thread block.
///
/// One thread block an SM takes strips of 16 rows in turn: block b takes those with index b, b + blocks, ...
/// The chunks of their K, one strip after the other, go round the block's warps, so that all warps have the
/// same work for any K. Each warp keeps the next kStages chunks in flight to its own part of shared memory
/// (cp.async). This keeps the memory busy across the ends of strips and, for the first chunks, before
/// begin_kernel(): weights depend on no kernel before. One token is first brought to shared memory, as
/// operands; several tokens come through the L1 and stay there. The warps' sums of a strip meet in shared
/// memory and are added in one order.
///
/// A block takes more than half of an SM's shared memory, so that every SM has one block of a product: a second
/// block on one SM, while others have none, would double the total time. A block calls allow_next_kernel()
/// first: as blocks end, blocks of the next product arrive and start their copies, even past a small kernel in
/// between.
///
/// A norm in front of a product with one token costs no launch: its factor is the same for all columns, so the
/// sums are multiplied by it, and x by the norm's weights.
///
/// Measured on one H200 with weights from memory: 96 % of a read's 4.53 TB/s for gate and up of Llama-3.1-8B
/// in bf16 with one token, 86 % for down, 70 % for the 32 MiB of the attention output.
///
/// A Multiplier is one warp's part: kWarps, kStages, kChunkCols, kChunkBytes, kColumns (tokens), Chunk: a warp's
/// part of a chunk in registers, constructed from (slot, lane),
///   static void copy(char* slot, args, matrix, strip, chunk, lane)    starts the copy of a chunk
///   kNorm: whether there is a norm in front; kBringsX and, if it is true,
///   static int64_t x_bytes(cols)                                      one token in shared memory; 0: x is not brought
///   static void bring_x(args, char* x, warp, lane)                    brings a warp's share of x there
///   void multiply(const Chunk&, args, const char* x, chunk, lane)     adds to its sums; x null: not brought
///   void store(float* partials [kColumns][16], lane)                  writes its sums and clears them
namespace minfer::cuda {

/// A chunk of a strip of a matrix.
struct StripWalk {
  int strip;
  int matrix;
  int chunk;

  /// Goes to the chunk `distance` further on; `blocks` take turns.
  __device__ __forceinline__ void advance(int distance, int chunks, int matrices, int blocks) {
    chunk += distance;
    while (chunk >= chunks) {
      chunk -= chunks;
      if (++matrix < matrices) continue;
      matrix = 0;
      strip += blocks;
    }
  }
};

/// The warps' sums of a strip.
template <class Multiplier, int kMatrices>
using StripPartials = float[kMatrices][Multiplier::kWarps][Multiplier::kColumns * kStripRows];

/// A little more than half of the 227 KiB of an H200, or of 99 KiB.
inline constexpr size_t kHalfOfShared = kHasSmallBlocks ? 51 << 10 : 114 << 10;
inline constexpr size_t kMostShared = kNeededSharedBytes;

/// Strips between two barriers. With one column the sums are few, and a barrier for each strip would cost as
/// much as its products.
template <class Multiplier>
constexpr int kStripsAtOnce = Multiplier::kColumns == 1 ? 2 : 1;

/// Shared memory of strip_kernel: the warps' rings of chunks, then the sums between two barriers, twice, so
/// that one barrier is enough.
template <class Multiplier, int kMatrices>
struct StripShared {
  alignas(128) char rings[Multiplier::kWarps][Multiplier::kStages][Multiplier::kChunkBytes];
  StripPartials<Multiplier, kMatrices> partials[2][kStripsAtOnce<Multiplier>];
  float squares[Multiplier::kWarps];  ///< sums of x^2, with a norm
};

/// A warp's share of the sum of x^2.
template <int kWarps>
__device__ __forceinline__ float squares_of_warp(const ProductArgs& args) {
  float sum = 0.0f;
  for (int k = 4 * static_cast<int>(threadIdx.x); k < args.cols; k += 4 * 32 * kWarps) {
    const float4 x = *reinterpret_cast<const float4*>(static_cast<const float*>(args.x) + k);
    sum = fmaf(x.x, x.x, fmaf(x.y, x.y, fmaf(x.z, x.z, fmaf(x.w, x.w, sum))));
  }
  return warp_sum(sum);
}

/// A norm's factor for all columns.
template <int kWarps>
__device__ __forceinline__ float norm_factor(const ProductArgs& args, const float (&squares)[kWarps]) {
  float sum = squares[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    sum += squares[warp];
  return 1.0f / sqrtf(sum / static_cast<float>(args.cols) + args.norm_eps);
}

/// The sum over the warps of element i of a strip: token i / 16, row i % 16.
template <int kWarps, int kElements>
__device__ __forceinline__ float sum_of_warps(const float (&partials)[kWarps][kElements], int i) {
  float sum = partials[0][i];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp)
    sum += partials[warp][i];
  return sum;
}

/// Adds the sums of up to kStripsAtOnce strips `strip`, strip + blocks, ... and writes them times `factor`. The
/// warps do it in turn (`turn`), while the others go on.
template <class Multiplier, int kMatrices>
__device__ __forceinline__ void finish_strips(
    const ProductArgs& args, int strip, int blocks, int turn, float factor,
    const StripPartials<Multiplier, kMatrices> (&partials)[kStripsAtOnce<Multiplier>]) {
  constexpr int kThreads = Multiplier::kWarps * 32;
  const int elements = kStripRows * args.tokens;
  for (int i = (threadIdx.x + 32 * turn) % kThreads; i < kStripsAtOnce<Multiplier> * elements;
       i += kThreads) {
    const int which = kStripsAtOnce<Multiplier> == 1 ? 0 : i / elements;
    const int element = i - which * elements;
    const int row = (strip + which * blocks) * kStripRows + element % kStripRows;
    if (row >= args.rows) continue;
    float value = factor * sum_of_warps(partials[which][0], element);
    if constexpr (kMatrices == 2) {
      value = output_of(args, row, value, factor * sum_of_warps(partials[which][1], element));
    } else {
      value = output_of(args, row, value);
    }
    store_output(args, element / kStripRows, row, value);
  }
}

/// The work of block `block` of `blocks`.
template <class Multiplier, int kMatrices>
__device__ __forceinline__ void run_strips(const ProductArgs& args, char* shared_bytes, int block, int blocks,
                                           const Stamp& stamp) {
  using Shared = StripShared<Multiplier, kMatrices>;
  auto& shared = *reinterpret_cast<Shared*>(shared_bytes);
  constexpr int kWarps = Multiplier::kWarps;
  constexpr int kStages = Multiplier::kStages;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int strips = (args.rows + kStripRows - 1) / kStripRows;
  const int chunks = (args.cols + Multiplier::kChunkCols - 1) / Multiplier::kChunkCols;

  allow_next_kernel();
  StripWalk next{block, 0, 0};
  next.advance(warp, chunks, kMatrices, blocks);
  const auto copy_next = [&](char* slot) {
    if (next.strip < strips) Multiplier::copy(slot, args, next.matrix, next.strip, next.chunk, lane);
    commit_copies();
    next.advance(kWarps, chunks, kMatrices, blocks);
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
    if (args.brings_x) {
      x = shared_bytes + sizeof(Shared);
      Multiplier::bring_x(args, x, warp, lane);
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
  StripWalk now{block, 0, 0};
  now.advance(warp, chunks, kMatrices, blocks);
  int stage = 0;
  int parity = 0;
  int turn = 0;
  for (int strip = block; strip < strips; strip += kStripsAtOnce<Multiplier> * blocks) {
#pragma unroll 1
    for (int i = 0; i < kStripsAtOnce<Multiplier> * kMatrices; ++i) {
      const int which = i / kMatrices;
      const int matrix = i % kMatrices;
      const int current = strip + which * blocks;
      if (current >= strips) break;
      while (now.strip == current && now.matrix == matrix) {
        char* slot = shared.rings[warp][stage];
        wait_for_copies<kStages - 1>();
        __syncwarp();
        const typename Multiplier::Chunk chunk(slot, lane);
        __syncwarp();
        copy_next(slot);
        multiplier.multiply(chunk, args, x, now.chunk, lane);
        stage = stage + 1 == kStages ? 0 : stage + 1;
        now.advance(kWarps, chunks, kMatrices, blocks);
      }
      multiplier.store(shared.partials[parity][which][matrix][warp], lane);
    }
    const bool finds_factor = Multiplier::kNorm && x == nullptr && strip == block;  // by now x is in the L1
    if (finds_factor) bring_squares();
    __syncthreads();
    if (finds_factor) factor = norm_factor(args, shared.squares);
    finish_strips<Multiplier, kMatrices>(args, strip, blocks, turn, factor, shared.partials[parity]);
    parity ^= 1;
    turn += 2;
  }
}

template <class Multiplier, int kMatrices>
__global__ void __launch_bounds__(Multiplier::kWarps * 32, 1)
    strip_kernel(const __grid_constant__ ProductArgs args, Stamp stamp) {
  extern __shared__ __align__(128) char shared_bytes[];
  run_strips<Multiplier, kMatrices>(args, shared_bytes, static_cast<int>(blockIdx.x),
                                    static_cast<int>(gridDim.x), stamp);
}

/// Shared memory of a block, with room for x if there is one token and it fits.
template <class Multiplier, int kMatrices>
size_t strip_shared_bytes(ProductArgs& args) {
  constexpr size_t kShared = sizeof(StripShared<Multiplier, kMatrices>);
  static_assert(kShared <= kMostShared);
  size_t bytes = kShared;
  if constexpr (Multiplier::kBringsX) {
    const auto x_bytes = static_cast<size_t>(Multiplier::x_bytes(args.cols));
    args.brings_x = args.tokens == 1 && x_bytes > 0 && kShared + x_bytes <= most_shared_bytes();
    if (args.brings_x) bytes += x_bytes;
  }
  return std::max(bytes, kHalfOfShared);
}

/// One thread block an SM.
template <class Multiplier, int kMatrices>
void launch_strips(Launch& launch, ProductArgs args) {
  using Shared = StripShared<Multiplier, kMatrices>;
  const int strips = (args.rows + kStripRows - 1) / kStripRows;
  const int blocks = strips < launch.num_sms() ? strips : launch.num_sms();
  launch.reads_ahead(blocks * static_cast<int64_t>(sizeof(Shared::rings)))(
      kMatrices == 2 ? "strip_gate_up" : "strip_product", strip_kernel<Multiplier, kMatrices>,
      static_cast<unsigned>(blocks), Multiplier::kWarps * 32, strip_shared_bytes<Multiplier, kMatrices>(args),
      args);
}

}  // namespace minfer::cuda
