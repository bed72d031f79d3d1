#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/stream/stream_schedule.cuh"
#include "kernels/cuda/ptx/bulk_copy.cuh"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"

/// bf16 weights times activations on Hopper's tensor cores (wgmma); bulk copies (TMA) bring both.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or activation(Wg x + bg, Wu x + bu).
///
/// The product is computed as out^T = W x^T: wgmma takes 64 rows of weights, and the few tokens are its N. A block has a
/// producer, one thread that keeps kStages boxes of 64 columns of weights and x in flight, and one or two warpgroups that
/// multiply 64 rows each. Weights of the first stages are loaded before begin_kernel(): they depend on no kernel before.
///
/// gate_up: eight rows of gate and eight rows of up alternate (one box of a map of four dimensions).
///
/// Bytes: weights once, 2 rows cols; x once for each row of tiles, from the L2: 2 tokens cols rows / tile rows.
namespace minfer::cuda {

template <int kTokens_, int kWarpgroups_, bool kGateUp_>
struct StreamTile {
  static constexpr int kTokens = kTokens_;          ///< 8 to 128, 192 or 256
  static constexpr int kWarpgroups = kWarpgroups_;  ///< with 64 rows each
  static constexpr bool kGateUp = kGateUp_;

  static constexpr bool kMayCluster =
      kTokens <= kMostTokensOfCluster;  ///< larger tiles lack the registers for it
  /// True if sums take more registers than each thread has: the producer is a warpgroup, which gives some of its own.
  static constexpr bool kTakesRegisters = kTokens >= 128 && kWarpgroups == 2;
  static constexpr int kThreads = 128 * kWarpgroups + (kTakesRegisters ? 128 : 64);
  static constexpr int kRows = kWarpgroupRows * kWarpgroups;  ///< of weights; gate and up have half each
  static constexpr int kOutRows = kGateUp ? kRows / 2 : kRows;
  static constexpr int kTogether = 8;  ///< rows of gate, then of up
  static constexpr int kWeightBytes = kRows * kSliceRowBytes;
  static constexpr int kXBytes = kTokens * kSliceRowBytes;
  /// Tokens that are stored at a time, without a cluster.
  static constexpr int kStoredTokens = kTokens < 32 ? kTokens : 128 / kWarpgroups == kTokens ? 16 : 32;
  static constexpr bool kStoresBf16 = true;  ///< by stream_bf16.cuh
  static constexpr bool kPairsWarps = false;
  static constexpr int kStoreBytes =
      kWarpgroups * std::max(kStoredTokens * kStoreStride * 4, Bf16Stage<kTokens, kGateUp>::kBytes);
  static constexpr int kSharedBytes = kTokens >= 128 ? kMostStreamBytes : kStreamBytes;
  static constexpr int kStages = (kSharedBytes - kStoreBytes - 1024) / (kWeightBytes + kXBytes);
};

template <class Tile>
struct StreamShared {
  struct Stages {
    alignas(1024) unsigned char weights[Tile::kStages][Tile::kWeightBytes];
    alignas(1024) unsigned char x[Tile::kStages][Tile::kXBytes];
  };
  union {
    Stages stages;
    float cluster_sums[Tile::kWarpgroups][Tile::kTokens][kStoreStride];  ///< after all stages are done
  };
  union {
    float sums[Tile::kWarpgroups][Tile::kStoredTokens][kStoreStride];
    alignas(16) unsigned char rows[Tile::kWarpgroups][Bf16StageOf<Tile>::kBytes];
  };
  SharedBarrier full[Tile::kStages];
  SharedBarrier empty[Tile::kStages];
};

/// Copies a segment's rows of weights, from column `column` on.
template <class Tile>
__device__ __forceinline__ void copy_rows(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                          uint64_t policy, const StreamSegment& segment, int32_t column) {
  if constexpr (Tile::kGateUp) {
    copy_box(to, map, barrier, policy, column, 0, 0, segment.tile * (Tile::kOutRows / 8));
  } else {
    copy_box(to, map, barrier, policy, column, segment.tile * Tile::kRows);
  }
}

template <class Tile, class Segment>
__device__ __forceinline__ void copy_weights(const CUtensorMap& map, StreamShared<Tile>& shared, int stage,
                                             uint64_t policy, const Segment& segment, int32_t depth) {
  arrive_expecting(shared.full[stage], Tile::kWeightBytes + Tile::kXBytes);
  copy_rows<Tile>(shared.stages.weights[stage], map, shared.full[stage], policy, segment,
                  depth * kStageColumns);
}

template <class Tile, class Schedule>
__device__ __forceinline__ void produce(const typename Schedule::Args& args, const CUtensorMap& weight_map,
                                        const CUtensorMap& x_map, StreamShared<Tile>& shared) {
  const uint64_t once = read_once_policy(), often = read_often_policy();
  if (!Schedule::kIsKnownAhead) begin_kernel({});
  Schedule schedule(args);
  typename Schedule::Segment segment;
  if (!schedule.take(segment)) return;
  const int32_t ahead = min(Tile::kStages, segment.count);
  for (int32_t i = 0; i < ahead; ++i)
    copy_weights<Tile>(weight_map, shared, i, once, segment, segment.first + i);
  begin_kernel({});
  RingPosition<Tile::kStages> ring;
  int32_t done = 0;
  do {
    for (int32_t i = 0; i < segment.count; ++i, ++done) {
      if (done >= ahead) {
        if (done >= Tile::kStages) wait(shared.empty[ring.stage], ring.parity ^ 1);
        copy_weights<Tile>(weight_map, shared, ring.stage, once, segment, segment.first + i);
      }
      copy_box(shared.stages.x[ring.stage], x_map, shared.full[ring.stage], often,
               (segment.first + i) * kStageColumns, first_token_of<Tile>(segment));
      ring.advance();
    }
  } while (schedule.take(segment));
}

template <class Tile>
__device__ __forceinline__ void multiply_stage(StreamSums<Tile>& sums, uint64_t weights, uint64_t x,
                                               bool adds) {
#pragma unroll
  for (int step = 0; step < 4; ++step)
    multiply_slices(sums, advanced(weights, 32 * step), advanced(x, 32 * step), adds || step > 0);
}

template <class Tile, class Schedule>
__device__ __forceinline__ void consume(const typename Schedule::Args& args, StreamShared<Tile>& shared) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const bool is_first_of_warp = threadIdx.x % 32 == 0;
  const uint32_t weights =
      shared_address(shared.stages.weights[0]) + warpgroup * kWarpgroupRows * kSliceRowBytes;
  const uint32_t x = shared_address(shared.stages.x[0]);
  RingPosition<Tile::kStages> ring;
  Schedule schedule(args);
  typename Schedule::Segment segment;
  while (schedule.take(segment)) {
    StreamSums<Tile> sums;
    int last = -1;
    for (int32_t i = 0; i < segment.count; ++i) {
      wait(shared.full[ring.stage], ring.parity);
      begin_products();
      multiply_stage<Tile>(sums, matrix_descriptor(same_in_warp(weights + ring.stage * Tile::kWeightBytes)),
                           matrix_descriptor(same_in_warp(x + ring.stage * Tile::kXBytes)), i > 0);
      commit_products();
      wait_products<1>();
      if (last >= 0 && is_first_of_warp) arrive(shared.empty[last]);
      last = ring.stage;
      ring.advance();
    }
    wait_products<0>();
    if (is_first_of_warp) arrive(shared.empty[last]);
    finish_segment<Tile>(args, shared, warpgroup, segment, sums);
  }
}

template <class Tile, class Schedule>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    stream_product_kernel(const __grid_constant__ typename Schedule::Args args,
                          const __grid_constant__ CUtensorMap weight_map,
                          const __grid_constant__ CUtensorMap x_map, Stamp stamp) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<StreamShared<Tile>*>(shared_bytes);
  allow_next_kernel();
  const bool is_producer = threadIdx.x == 128 * Tile::kWarpgroups;
  if (is_producer) {
    prefetch_map(weight_map);
    prefetch_map(x_map);
    for (int stage = 0; stage < Tile::kStages; ++stage) {
      make_barrier(shared.full[stage], 1);
      make_barrier(shared.empty[stage], 4 * Tile::kWarpgroups);
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= 128 * Tile::kWarpgroups) {
    if constexpr (Tile::kTakesRegisters) keep_registers<40>();
    is_producer ? produce<Tile, Schedule>(args, weight_map, x_map, shared) : begin_kernel({});
    if (Schedule::kIsKnownAhead && threadIdx.x / 32 == 4 * Tile::kWarpgroups + 1)
      publish_left_sums<Tile>(args);
  } else {
    if constexpr (Tile::kTakesRegisters) take_registers<232>();
    begin_kernel(stamp);
    consume<Tile, Schedule>(args, shared);
  }
#else
  __trap();
#endif
}

}  // namespace minfer::cuda
