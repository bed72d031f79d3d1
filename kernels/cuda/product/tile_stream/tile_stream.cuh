#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/stream/stream_schedule.cuh"
#include "kernels/cuda/product/stream/tile_pairs.cuh"
#include "kernels/cuda/product/tile_stream/tile_operands.cuh"
#include "kernels/cuda/ptx/bulk_copy.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"

/// Quantised weights times activations on Hopper's tensor cores.
///
/// out[t, n] (+)= sum over k of W[n, k] x[t, k] + bias[n], or activation(Wg x + bg, Wu x + bu).
///
/// Like stream_product.cuh, except that the weights, wgmma's first operand, come from registers: each warp of a
/// warpgroup converts a tile of 16 rows x 256 columns to bf16 (tile_operands.cuh), sixteen columns at a time,
/// while the products before run. Nothing is scaled after a product, and only the weights' own bytes are read.
///
/// A block has kRows rows: kRowGroups times 64, with kParts warpgroups for each 64. These divide the columns of
/// a tile and add their sums at the end: making operands takes more warps than multiplying does. Two producers,
/// one thread each, copy data as room becomes free: one copies tiles of weights, which wait for no kernel before,
/// the other x, 256 columns a stage, 128 with more than 64 tokens, or 64 with more than 128.
///
/// gate_up: two of the four tiles of a warpgroup are of gate and two of up.
///
/// Bytes: weights once, in their own size; x once for each row of blocks, from the L2: 2 tokens cols rows / kRows.
namespace minfer::cuda {

/// A tile as rows of a box of a tensor map.
template <DType type>
struct TilePieces {
  static constexpr int kBytes = Tile<type>::kBytes % 128 == 0   ? 128
                                : Tile<type>::kBytes % 224 == 0 ? 224
                                : Tile<type>::kBytes % 320 == 0 ? 320
                                                                : 352;
  static constexpr int kCount = Tile<type>::kBytes / kBytes;
  static_assert(kCount * kBytes == Tile<type>::kBytes && kCount <= 256);
};

template <DType type_, int kTokens_, int kRowGroups_, int kParts_>
struct TileStream {
  static constexpr DType type = type_;
  static constexpr int kTokens = kTokens_;  ///< 8 to 128, 192 or 256
  static constexpr int kRowGroups = kRowGroups_;
  static constexpr int kParts = kParts_;

  static constexpr int kWarpgroups = kRowGroups;  ///< that store
  static constexpr int kConsumers = 128 * kRowGroups * kParts;
  /// True if sums take more registers than each thread has: the producers' warpgroup gives some of its own.
  static constexpr bool kTakesRegisters = kTokens >= 64;
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kRows = kWarpgroupRows * kRowGroups;
  static constexpr int kTilesAbove = kRows / kStripRows;  ///< tiles of a stage, one above the other
  static constexpr bool kMayCluster = kTokens <= kMostTokensOfCluster;
  static constexpr bool kIsLargest = !kMayCluster;
  static constexpr bool kStoresBf16 = false;  ///< rows of gate and of up belong to different warps
  static constexpr int kTogether = 32;        ///< rows of gate, then of up

  static constexpr int kStageBytes = kTilesAbove * Tile<type>::kBytes;
  static_assert(kStageBytes % 128 == 0, "boxes of a tensor map begin there");
  static constexpr int kXSlices = kIsLargest ? 1 : kTokens > 64 ? 2 : 4;  ///< of 64 columns, in a stage of x
  static constexpr int kXSliceBytes = kTokens * kSliceRowBytes;
  static constexpr int kXBytes = kXSlices * kXSliceBytes;
  static constexpr int kStoredTokens = kTokens < 32 ? kTokens : 128 / kRowGroups == kTokens ? 16 : 32;
  static constexpr bool kPairsWarps = kParts == 1 && kTokens >= 2 * kPairTokens;  ///< for gate and up
  static constexpr int kStoreBytes =
      kRowGroups * std::max(kStoredTokens * kStoreStride * 4, kPairsWarps ? int{sizeof(PairedWarps)} : 0);
  static constexpr int kOtherParts = kParts == 1 ? 1 : kParts - 1;  ///< whose sums have to be added
  static constexpr int kPartialBytes = (kParts - 1) * kRowGroups * kTokens * kWarpgroupRows * 4;
  static constexpr int kSharedBytes = kIsLargest ? kMostStreamBytes : kStreamBytes;
  static constexpr int kFreeBytes = kSharedBytes - kStoreBytes - kPartialBytes - 2048;
  static constexpr int kWarpsOfX = 4 * kRowGroups * (kXSlices * kParts > 4 ? kXSlices * kParts / 4 : 1);
  static constexpr int kXStages = kIsLargest || kTokens <= 32 ? 4 : 3;
  static constexpr int kFittingStages = (kFreeBytes - kXStages * kXBytes) / kStageBytes;
  static constexpr int kStages = kFittingStages < 12 ? kFittingStages : 12;
};

/// The form as stream_schedule.cuh sees it: it stores rows as they are, or gate and up as one.
template <class Form, bool kGateUp_>
struct StoredTileStream : Form {
  static constexpr bool kGateUp = kGateUp_;
  static constexpr int kOutRows = kGateUp ? Form::kRows / 2 : Form::kRows;
  static constexpr bool kPairsWarps = kGateUp && Form::kPairsWarps;  ///< stored by tile_pairs.cuh
};

template <class Form>
struct TileStreamShared {
  struct Stages {
    alignas(1024) unsigned char x[Form::kXStages][Form::kXBytes];
    alignas(128) char weights[Form::kStages][Form::kTilesAbove][Tile<Form::type>::kBytes];
  };
  union {
    Stages stages;
    float cluster_sums[Form::kMayCluster ? Form::kRowGroups : 1][Form::kMayCluster ? Form::kTokens : 1]
                      [kStoreStride];  ///< after all stages are done
  };
  union {
    float sums[Form::kRowGroups][Form::kStoredTokens][kStoreStride];
    std::conditional_t<Form::kPairsWarps, PairedWarps, char> pairs[Form::kRowGroups];
  };
  /// Sums of all parts but the first: float4s of each thread.
  float4 part_sums[Form::kRowGroups][Form::kOtherParts][Form::kParts == 1 ? 1 : Form::kTokens / 8]
                  [Form::kParts == 1 ? 1 : 128];
  SharedBarrier full[Form::kStages];
  SharedBarrier empty[Form::kStages];
  SharedBarrier x_full[Form::kXStages];
  SharedBarrier x_empty[Form::kXStages];
};

/// Stage `turn` of a ring of kStages: its place, and the parity of its phase.
template <int kStages>
struct RingTurn {
  int stage;
  uint32_t parity;
  __device__ __forceinline__ explicit RingTurn(uint32_t turn)
      : stage(static_cast<int>(turn % kStages)), parity(turn / kStages % 2) {}
};

/// True if the product is gate and up. For a Schedule that never is, the compiler knows it.
template <class Schedule>
__device__ __forceinline__ bool is_gate_up(const typename Schedule::Args& args) {
  if constexpr (!Schedule::kMayGate) return false;
  return args.output.up != nullptr;
}

/// Copies the tiles of column `column` of a segment's rows, one above the other.
template <class Form>
__device__ __forceinline__ void copy_rows(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                          uint64_t policy, bool gate_up, const StreamSegment& segment,
                                          int32_t column) {
  constexpr int kPieces = TilePieces<Form::type>::kCount;
  if (gate_up) {
    copy_box(to, map, barrier, policy, 0, column * kPieces, 0, 0, segment.tile * (Form::kTilesAbove / 4));
  } else {
    copy_box(to, map, barrier, policy, 0, column * kPieces, segment.tile * Form::kTilesAbove);
  }
}

template <class Form, class Schedule>
__device__ __forceinline__ void produce_weights(const typename Schedule::Args& args, const CUtensorMap& map,
                                                TileStreamShared<Form>& shared) {
  const uint64_t once = read_once_policy();
  const bool gate_up = is_gate_up<Schedule>(args);
  Schedule schedule(args);
  typename Schedule::Segment segment;
  uint32_t turn = 0;
  while (schedule.take(segment)) {
    for (int32_t i = segment.first; i < segment.first + segment.count; ++i, ++turn) {
      const RingTurn<Form::kStages> ring(turn);
      if (turn >= Form::kStages) wait(shared.empty[ring.stage], ring.parity ^ 1);
      arrive_expecting(shared.full[ring.stage], Form::kStageBytes);
      copy_rows<Form>(shared.stages.weights[ring.stage], map, shared.full[ring.stage], once, gate_up, segment,
                      i);
    }
  }
}

template <class Form, class Schedule>
__device__ __forceinline__ void produce_x(const typename Schedule::Args& args, const CUtensorMap& map,
                                          TileStreamShared<Form>& shared) {
  constexpr int kStagesOfTile = 4 / Form::kXSlices;
  const uint64_t often = read_often_policy();
  Schedule schedule(args);
  typename Schedule::Segment segment;
  uint32_t turn = 0;
  while (schedule.take(segment)) {
    const int32_t end = kStagesOfTile * (segment.first + segment.count);
    for (int32_t i = kStagesOfTile * segment.first; i < end; ++i, ++turn) {
      const RingTurn<Form::kXStages> ring(turn);
      if (turn >= Form::kXStages) wait(shared.x_empty[ring.stage], ring.parity ^ 1);
      arrive_expecting(shared.x_full[ring.stage], Form::kXBytes);
      copy_box(shared.stages.x[ring.stage], map, shared.x_full[ring.stage], often, 0,
               first_token_of<Form>(segment), i * Form::kXSlices);
    }
  }
}

template <int kParts>
__device__ __forceinline__ void barrier_of_parts(int row_group) {
  row_group == 0 ? barrier_of(4, 128 * kParts) : barrier_of(5, 128 * kParts);
}

/// Adds the sums of all parts of 64 rows, in the first part's threads.
template <class Form>
__device__ __forceinline__ void add_parts(TileStreamShared<Form>& shared, int row_group, int part,
                                          StreamSums<Form>& sums) {
  const int place = static_cast<int>(threadIdx.x) % 128;
  auto& part_sums = shared.part_sums[row_group];
  if (part > 0) {
#pragma unroll
    for (int i = 0; i < Form::kTokens / 8; ++i) {
      const float* four = four_of(sums, i);
      part_sums[part - 1][i][place] = make_float4(four[0], four[1], four[2], four[3]);
    }
  }
  barrier_of_parts<Form::kParts>(row_group);
  if (part == 0) {
#pragma unroll
    for (int other = 0; other < Form::kParts - 1; ++other) {
#pragma unroll
      for (int i = 0; i < Form::kTokens / 8; ++i) {
        const float4 more = part_sums[other][i][place];
        float* four = four_of(sums, i);
        four[0] += more.x;
        four[1] += more.y;
        four[2] += more.z;
        four[3] += more.w;
      }
    }
  }
  barrier_of_parts<Form::kParts>(row_group);
}

template <class Form, class Schedule>
__device__ __forceinline__ void consume(const typename Schedule::Args& args, TileStreamShared<Form>& shared) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const int row_group = warpgroup / Form::kParts, part = warpgroup % Form::kParts;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kQuarters = 4 / Form::kParts;  // of a tile's columns: stages of x
  const int own_tile = Schedule::tile_of_warp(Form::kTilesAbove, is_gate_up<Schedule>(args), row_group, warp);
  const uint32_t x = shared_address(shared.stages.x[0]);
  Schedule schedule(args);
  typename Schedule::Segment segment;
  uint32_t turn = 0;
  while (schedule.take(segment)) {
    StreamSums<Form> sums;
    int used_x = -1;  // the stage of x that the products in flight read last; -1: none
    for (int32_t i = 0; i < segment.count; ++i, ++turn) {
      const RingTurn<Form::kStages> ring(turn);
      wait(shared.full[ring.stage], ring.parity);
      const TilePart<Form::type, Form::kParts> tile(shared.stages.weights[ring.stage][own_tile], lane, part);
      const OperandScales<Form::type, Form::kParts> scales(tile.registers, part);
      // The arriving lane depends on all lanes' loaded data: an arrival before the loads end would let their source be overwritten.
      const int arrives = __any_sync(kWholeWarp, tile.loaded() != 0) ? 1 : 0;
      if (lane == arrives) arrive(shared.empty[ring.stage]);
#pragma unroll
      for (int quarter = 0; quarter < kQuarters; ++quarter) {
        uint32_t operands[4][4];
#pragma unroll
        for (int step = 0; step < 4; ++step)
          scaled_operand(tile, scales, 4 * quarter + step, operands[step]);
        const int slice = kQuarters * part + quarter;  // among the tile's columns
        const RingTurn<Form::kXStages> x_ring(4 / Form::kXSlices * turn + slice / Form::kXSlices);
        if (quarter % Form::kXSlices == 0) wait(shared.x_full[x_ring.stage], x_ring.parity);
        const uint64_t tokens = matrix_descriptor(
            same_in_warp(x + x_ring.stage * Form::kXBytes + slice % Form::kXSlices * Form::kXSliceBytes));
        begin_products();
#pragma unroll
        for (int step = 0; step < 4; ++step)
          multiply_slices(sums, operands[step], advanced(tokens, 32 * step),
                          i > 0 || quarter > 0 || step > 0);
        commit_products();
        wait_products<1>();
        if (used_x >= 0 && lane == 0) arrive(shared.x_empty[used_x]);
        const bool ends_stage = quarter + 1 == kQuarters || (quarter + 1) % Form::kXSlices == 0;
        used_x = ends_stage ? x_ring.stage : -1;
      }
    }
    wait_products<0>();
    if (lane == 0) arrive(shared.x_empty[used_x]);
    if constexpr (Form::kParts > 1) add_parts<Form>(shared, row_group, part, sums);
    if (part > 0) continue;
    if (is_gate_up<Schedule>(args)) {
      finish_segment<StoredTileStream<Form, true>>(args, shared, row_group, segment, sums);
    } else {
      finish_segment<StoredTileStream<Form, false>>(args, shared, row_group, segment, sums);
    }
  }
}

/// A block's part of a product.
template <class Form, class Schedule>
__device__ __forceinline__ void run_tile_stream(const typename Schedule::Args& args,
                                                const CUtensorMap& weight_map, const CUtensorMap& x_map,
                                                unsigned char* shared_bytes, const Stamp& stamp) {
  auto& shared = *reinterpret_cast<TileStreamShared<Form>*>(shared_bytes);
  allow_next_kernel();
  if (threadIdx.x == 0) {
    prefetch_map(weight_map);
    prefetch_map(x_map);
    for (int stage = 0; stage < Form::kStages; ++stage) {
      make_barrier(shared.full[stage], 1);
      make_barrier(shared.empty[stage], Form::kConsumers / 32);
    }
    for (int stage = 0; stage < Form::kXStages; ++stage) {
      make_barrier(shared.x_full[stage], 1);
      make_barrier(shared.x_empty[stage], Form::kWarpsOfX);
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= Form::kConsumers) {
    if constexpr (Form::kTakesRegisters) keep_registers<40>();
    if constexpr (!Schedule::kIsKnownAhead) begin_kernel({});
    if (threadIdx.x == Form::kConsumers) produce_weights<Form, Schedule>(args, weight_map, shared);
    if constexpr (Schedule::kIsKnownAhead) begin_kernel({});
    if (threadIdx.x == Form::kConsumers + 32) produce_x<Form, Schedule>(args, x_map, shared);
    if (Schedule::kIsKnownAhead && threadIdx.x / 32 == Form::kConsumers / 32 + 2)
      publish_left_sums<Form>(args);
  } else {
    if constexpr (Form::kTakesRegisters) take_registers<232>();
    begin_kernel(stamp);
    consume<Form, Schedule>(args, shared);
  }
}

template <class Form, class Schedule>
__global__ void __launch_bounds__(Form::kThreads, 1)
    tile_stream_kernel(const __grid_constant__ typename Schedule::Args args,
                       const __grid_constant__ CUtensorMap weight_map,
                       const __grid_constant__ CUtensorMap x_map, Stamp stamp) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  run_tile_stream<Form, Schedule>(args, weight_map, x_map, shared_bytes, stamp);
#else
  __trap();
#endif
}

}  // namespace minfer::cuda
