#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/choice/expert_strip_sizes.h"
#include "kernels/cuda/moe/expert_strip.h"
#include "kernels/cuda/moe/expert_strip_share.h"
#include "kernels/cuda/moe/routes/moe_routes.cuh"
#include "kernels/cuda/product/strip/tile_strip.cuh"
#include "kernels/cuda/product/strip/tile_strip_x.cuh"
#include "kernels/cuda/weights/weight_types.h"

/// Quantised experts with few routes each, on tensor cores.
///
/// A block's work is a contiguous part of the strips of all batches (expert_strip_share.h). A warp takes every
/// kWarps-th of these strips, over all columns: so warps share no sums and do not wait for each other while they
/// multiply. x of a batch is copied to shared memory once, as B operands, and serves all its strips. x of as many
/// batches as fit is copied at a time. A tile's codes become operands once for up to 16 routes, and a load of x serves
/// a tile of gate and one of up. A warp's tiles lie behind each other in memory; it keeps the next kStages in flight.
/// Only the routes have to be known first: down loads its first weights before gate and up have ended.
///
/// Large batches (9 to 16 routes) and small ones alternate, so that a block with parts of two has room for x of both at once.
///
/// Numerics as in tile_strip.cuh: weights exact, x in f16 with one unit for 256 columns of a route.
///
/// Bytes: the weights of the experts in use once for each batch; x once for each block and batch.
namespace minfer::cuda {

template <DType type>
struct ExpertStrip {
  static constexpr int kWarps = kHasSmallBlocks ? 8 : 16;
  static constexpr int kStages = 2;  ///< of one tile each
  static constexpr int kTileRoutes = TileStripX<type>::kTokens;
  static constexpr int64_t kRingBytes = int64_t{kWarps} * kStages * Tile<type>::kBytes;

  using X = TileStripX<type>;
  /// x of a chunk for eight routes. At first it serves as staging for x.
  struct Operands {
    uint2 words[16][kWarpSize];
    uint2 sums[X::kHasMinimumSums ? kWarpSize : 1];
    alignas(16) typename X::Bias biases[X::kHasBias ? X::kGroups : 1][4];
    float units[kTileRoutes];
    int32_t routes[kTileRoutes];
  };

  // The choice of the kernel uses these sizes.
  static_assert(sizeof(Operands) == expert_operand_bytes(type) && kRingBytes == expert_ring_bytes(type));
};

/// Strips of one batch that a block takes in turn.
struct StripRun {
  ExpertBatch batch;
  int32_t first_strip;
  int32_t strips;
};

/// The run of strip `at` among the strips of all batches, up to `end`.
__device__ __forceinline__ StripRun strip_run(const MoeProduct& p, int32_t strips, int32_t at, int32_t end) {
  const int32_t first_strip = at % strips;
  return {batch_at(p, at / strips), first_strip, min(strips - first_strip, end - at)};
}

/// The tiles of a warp in its order: for each chunk of a strip the tile of gate, then the tile of up.
template <DType type, int kMatrices>
class ExpertStripTiles {
 public:
  /// `at`: the first strip.
  __device__ __forceinline__ ExpertStripTiles(const MoeProduct& p, int32_t strips, int32_t chunks, int32_t at,
                                              int32_t end)
      : p_(p), strips_(strips), chunks_(chunks), at_(at), end_(end) {
    begin_strip();
  }
  /// Starts the copy of the chunk's tile of a matrix.
  __device__ __forceinline__ void copy(int matrix, char* slot, int lane) const {
    if (at_ < end_) copy_tile<type>(slot, tiles_[matrix], lane);
    commit_copies();
  }
  __device__ __forceinline__ void advance() {
    if (++chunk_ == chunks_) {
      at_ += ExpertStrip<type>::kWarps;
      begin_strip();
    } else {
#pragma unroll
      for (const char*& tile : tiles_)
        tile += Tile<type>::kBytes;
    }
  }

 private:
  __device__ __forceinline__ void begin_strip() {
    chunk_ = 0;
    if (at_ >= end_) return;
    const int64_t from = batch_at(p_, at_ / strips_).expert * p_.matrix_bytes +
                         int64_t{at_ % strips_} * chunks_ * Tile<type>::kBytes;
    tiles_[0] = static_cast<const char*>(p_.weight) + from;
    if constexpr (kMatrices == 2) tiles_[1] = static_cast<const char*>(p_.up) + from;
  }

  const MoeProduct& p_;
  const int32_t strips_;  ///< of a matrix
  const int32_t chunks_;
  int32_t at_, end_;  ///< index among the strips of all batches
  int32_t chunk_ = 0;
  const char* tiles_[kMatrices] = {};
};

/// x of a chunk for multiply_tiles(): in shared memory.
template <DType type>
struct StripXInMemory {
  const typename ExpertStrip<type>::Operands* tiles;  ///< for eight routes, `chunks` apart
  int chunks;
  int lane;

  __device__ __forceinline__ uint2 words(int tile, int i) const {
    return tiles[tile * chunks].words[i][lane];
  }
  __device__ __forceinline__ StripBias<type> bias(int tile, int group) const {
    return tiles[tile * chunks].biases[group][lane % 4];
  }
  __device__ __forceinline__ uint2 sums(int tile) const { return tiles[tile * chunks].sums[lane]; }
  __device__ __forceinline__ float unit(int tile, int of_pair) const {
    return tiles[tile * chunks].units[2 * (lane % 4) + of_pair];
  }
};

/// Converts x of eight routes of the batch, from route 8 * tile on, for a chunk. A warp calls it.
template <DType type>
__device__ __forceinline__ void bring_operands(const MoeProduct& p, const ExpertBatch& batch, int tile,
                                               int chunk, typename ExpertStrip<type>::Operands& to,
                                               int lane) {
  constexpr int kRoutes = ExpertStrip<type>::kTileRoutes;
  const int count = min(kRoutes, batch.count - kRoutes * tile);
  const int32_t route = lane < count ? route_at(p, batch, kRoutes * tile + lane) : 0;
  const int32_t row = route / p.routes_per_x;
  TileStripX<type> x;
  x.template bring<sizeof(to.words)>(
      [&](int token) {
        return static_cast<const __nv_bfloat16*>(p.x) + __shfl_sync(kWholeWarp, row, token) * p.x_stride;
      },
      count, p.cols, chunk, reinterpret_cast<char*>(to.words), lane);
  x.convert(to.biases, lane);
#pragma unroll
  for (int i = 0; i < 16; ++i)
    to.words[i][lane] = x.words[i];
  if constexpr (TileStripX<type>::kHasMinimumSums) to.sums[lane] = x.sums;
  if (lane < 4) {
    to.units[2 * lane] = x.units[0];
    to.units[2 * lane + 1] = x.units[1];
  }
  if (lane < count) to.routes[lane] = route;
}

/// Writes elements of a strip, laid out as in C: rows lane / 4 and lane / 4 + 8, for routes 2 (lane % 4) and the next one of each tile.
template <DType type, int kMatrices, int kTiles>
__device__ __forceinline__ void write_strip(const MoeProduct& p, const ExpertBatch& batch, int strip,
                                            const StripXInMemory<type>& x,
                                            const float (&sums)[kMatrices][kTiles][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = strip * kStripRows + x.lane / 4 + 8 * half;
    if (row >= p.rows) break;
    const auto bias_in = [&](const float* biases) {
      return kMatrices == 1 || biases == nullptr ? 0.0f : biases[int64_t{batch.expert} * p.rows + row];
    };
    const float bias = bias_in(p.bias), up_bias = bias_in(p.up_bias);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int column = 2 * (x.lane % 4) + j;
        if (ExpertStrip<type>::kTileRoutes * t + column >= batch.count) break;
        const int32_t route = x.tiles[t * x.chunks].routes[column];
        const float sum = sums[0][t][2 * half + j];
        store_route(p, route, row,
                    kMatrices == 1 ? sum
                                   : gated_biased<false>(p, route, bias, up_bias, sum,
                                                         sums[kMatrices - 1][t][2 * half + j]));
      }
    }
  }
}

template <DType type, int kMatrices>
__global__ void __launch_bounds__(ExpertStrip<type>::kWarps* kWarpSize, 1)
    expert_strip_kernel(const __grid_constant__ MoeProduct p, int32_t slots, Stamp stamp) {
  using Strip = ExpertStrip<type>;
  using Operands = typename Strip::Operands;
  constexpr int kStages = Strip::kStages;
  extern __shared__ __align__(128) char shared_bytes[];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  char* const ring = shared_bytes + warp * kStages * Tile<type>::kBytes;
  auto* const operands = reinterpret_cast<Operands*>(shared_bytes + Strip::kRingBytes);  // [slots][chunks]

  if (!p.groups.are_complete) begin_kernel(stamp);
  const int32_t strips = (p.rows + kStripRows - 1) / kStripRows;
  const int32_t chunks = (p.cols + kTileCols - 1) / kTileCols;
  const BatchCounts batches = num_batches(p);
  const ExpertStripShare share{batches.large, batches.all - batches.large, strips};
  const auto block = static_cast<int32_t>(blockIdx.x), blocks = static_cast<int32_t>(gridDim.x);
  const int32_t first = share.first_of(block, blocks);
  const int32_t end = share.first_of(block + 1, blocks);
  const auto tiles_of_batch = [](const StripRun& run) {
    return run.batch.count > Strip::kTileRoutes ? 2 : 1;
  };

  int32_t own = first + warp;  // strip
  ExpertStripTiles<type, kMatrices> next(p, strips, chunks, own, end);
  const auto slot_of = [ring](int stage) { return ring + stage * Tile<type>::kBytes; };
#pragma unroll
  for (int stage = 0; stage < kStages; stage += kMatrices) {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m)
      next.copy(m, slot_of(stage + m), lane);
    next.advance();
  }
  if (p.groups.are_complete) begin_kernel(stamp);
  allow_next_kernel();

  int stage = 0;
#pragma unroll 1
  for (int32_t at = first; at < end;) {
    __syncthreads();  // no warp reads the earlier operands any more
    int32_t brought = at;
    int32_t used = 0;
#pragma unroll 1
    while (brought < end) {
      const StripRun run = strip_run(p, strips, brought, end);
      const int32_t tiles = tiles_of_batch(run);
      if (used + tiles > slots) break;
      for (int32_t i = warp; i < tiles * chunks; i += Strip::kWarps)
        bring_operands<type>(p, run.batch, i / chunks, i % chunks, operands[used * chunks + i], lane);
      used += tiles;
      brought += run.strips;
    }
    __syncthreads();
    int32_t slot = 0;
#pragma unroll 1
    while (at < brought) {
      const StripRun run = strip_run(p, strips, at, end);
      const Operands* of_run = operands + slot * chunks;
      const auto multiply = [&]<int kTiles>() {
#pragma unroll 1
        for (; own < at + run.strips; own += Strip::kWarps) {
          float sums[kMatrices][kTiles][4] = {};
#pragma unroll 1
          for (int32_t chunk = 0; chunk < chunks; ++chunk) {
            TileRegisters<type> tiles[kMatrices];
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
              char* held = slot_of(stage + m);
              wait_for_copies<kStages - 1>();
              __syncwarp();
              tiles[m] = TileRegisters<type>(held, lane);
              __syncwarp();
              next.copy(m, held, lane);
            }
            next.advance();
            stage = (stage + kMatrices) % kStages;
            multiply_tiles<type>(sums, tiles, StripXInMemory<type>{of_run + chunk, chunks, lane});
          }
          write_strip<type, kMatrices>(p, run.batch, run.first_strip + own - at,
                                       StripXInMemory<type>{of_run, chunks, lane}, sums);
        }
      };
      tiles_of_batch(run) == 2 ? multiply.template operator()<2>() : multiply.template operator()<1>();
      slot += tiles_of_batch(run);
      at += run.strips;
    }
  }
}

template <DType type, int kMatrices>
void launch_expert_strips(Launch& launch, const MoeProduct& p) {
  using Strip = ExpertStrip<type>;
  // Operands of more batches than a block is likely to have would only cost time.
  constexpr int32_t kMostSlots = 8;
  const int64_t chunks = tiles_of(p.cols);
  const int32_t slots = std::min(expert_slots(type, p.cols, kStripSharedBytes), kMostSlots);
  launch.reads_ahead(p.groups.are_complete ? launch.num_sms() * Strip::kRingBytes : 0)(
      kMatrices == 2 ? "expert_strip_gate_up" : "expert_strip", expert_strip_kernel<type, kMatrices>,
      static_cast<unsigned>(launch.num_sms()), static_cast<unsigned>(kWarpSize * Strip::kWarps),
      static_cast<size_t>(Strip::kRingBytes +
                          slots * chunks * static_cast<int64_t>(sizeof(typename Strip::Operands))),
      p, slots);
}

template <int kMatrices>
void expert_strip_product(Launch& launch, const MoeProduct& p) {
  for_type(CommonTypes{}, "expert_strip_product", p.dtype,
           [&](auto type) { launch_expert_strips<type, kMatrices>(launch, p); });
}

}  // namespace minfer::cuda
