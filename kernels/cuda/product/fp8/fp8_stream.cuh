#pragma once

#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/stream/stream_schedule.cuh"
#include "kernels/cuda/ptx/bulk_copy.cuh"
#include "kernels/cuda/ptx/fp8_group.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/weights/quant_tile.cuh"

/// FP8 weights times FP8 activations on Hopper's tensor cores.
///
/// out[t, n] (+)= dw[n] sum over groups g of dx[t, g] sum over k in g of W[n, k] x[t, k] + bias[n], or activation(gate, up).
///
/// Like stream_product.cuh, with tiles of weights that lie in memory as warps need them in registers, as wgmma's first operand. TMA
/// copies x and its scales beside them, 128 columns a slice. The tensor cores' own sums have too few bits for all of K, so they
/// restart every 128 columns and are added, times dx, to sums in f32. All columns of a row have one scale, dw, which is applied last.
///
/// A block has kWarpgroups groups of 64 rows; each of its kConsumerGroups warpgroups multiplies one or two of
/// these. For gate and up, a warpgroup's first 64 rows are of gate and its second 64 of up, so that a thread
/// has both sums of an output. The block then has 128 columns of the output, which share a scale in FP8.
///
/// Bytes: weights once, rows cols; x once for each row of tiles, from the L2: tokens cols rows / tile rows.
namespace minfer::cuda {

template <int kTokens_, int kConsumerGroups_, int kTurns_, bool kGateUp_>
struct Fp8Form {
  static constexpr int kTokens = kTokens_;  ///< 8 to 128
  static constexpr int kConsumerGroups = kConsumerGroups_;
  static constexpr int kTurns = kTurns_;  ///< groups of 64 rows of a warpgroup
  static constexpr bool kGateUp = kGateUp_;
  static_assert(!kGateUp || (kConsumerGroups == 2 && kTurns == 2));
  /// Groups of 64 rows; group turn * kConsumerGroups + w belongs to warpgroup w.
  static constexpr int kWarpgroups = kConsumerGroups * kTurns;
  /// Tokens that are multiplied at a time: their products need registers too.
  static constexpr int kSome = kTokens < 64 ? kTokens : 64;
  static constexpr int kConsumers = 128 * kConsumerGroups;
  static constexpr int kThreads = kConsumers + 128;
  /// True if sums take more registers than each thread has: the producer's warpgroup gives some of its own.
  static constexpr bool kTakesRegisters = kConsumerGroups == 2 && kTokens * kTurns >= 64;
  static constexpr int kRows = kWarpgroupRows * kWarpgroups;
  static constexpr int kOutRows = kGateUp ? kRows / 2 : kRows;
  static constexpr int kTilesAbove = kRows / kStripRows;
  static constexpr bool kMayCluster = kTurns == 1;
  static constexpr bool kStoresBf16 = false;
  static constexpr bool kPairsWarps = false;
  static constexpr int kTogether = 32;

  static constexpr int kTileBytes = kStripRows * kFp8Columns;     ///< in half a tile
  static constexpr int kSlices = kRows + kTokens <= 192 ? 2 : 1;  ///< of 128 columns, in a stage
  static constexpr int kWeightBytes = kSlices * kTilesAbove * kTileBytes;
  static constexpr int kXSliceBytes = kTokens * kSliceRowBytes;
  static constexpr int kXBytes = kSlices * kXSliceBytes;
  static constexpr int kScaleBytes = kSlices * kTokens * 2;
  static constexpr int kScalesOfSlice = kTokens < 64 ? 64 : kTokens;  ///< at least 128 bytes
  static constexpr int kStageBytes = kWeightBytes + kXBytes + kSlices * kScalesOfSlice * 2;
  static constexpr int kStoredTokens = kTokens < 32 ? kTokens : 32;
  /// Bytes from a token to the next, so that no two lanes use one bank.
  static constexpr int kCodeStride = kFp8Columns + 16;
  static constexpr int kStoreBytes = kGateUp ? kTokens * (kCodeStride + 4 * kConsumers / 32 + 4)
                                             : kConsumerGroups * kStoredTokens * kStoreStride * 4;
  static constexpr int kFittingStages = (kMostStreamBytes - kStoreBytes - 2048) / kStageBytes;
  static constexpr int kStages = kFittingStages < 10 ? kFittingStages : 10;
};

/// Staging memory of the output.
template <class Form, bool kGateUp>
struct Fp8Output {
  float sums[Form::kConsumerGroups][Form::kStoredTokens][kStoreStride];
};
template <class Form>
struct Fp8Output<Form, true> {
  alignas(16) uint8_t codes[Form::kTokens][Form::kCodeStride];
  float largest[Form::kConsumers / 32][Form::kTokens];  ///< in each warp's columns
  float inverse_scales[Form::kTokens];
};

template <class Form>
struct Fp8Shared : Fp8Output<Form, Form::kGateUp> {
  struct Stages {
    alignas(1024) unsigned char x[Form::kStages][Form::kXBytes];
    alignas(128) unsigned char weights[Form::kStages][Form::kSlices][Form::kTilesAbove][Form::kTileBytes];
    alignas(128) uint16_t scales[Form::kStages][Form::kSlices][Form::kScalesOfSlice];
  };
  union {
    Stages stages;
    float cluster_sums[Form::kMayCluster ? Form::kWarpgroups : 1][Form::kMayCluster ? Form::kTokens : 1]
                      [kStoreStride];  ///< after all stages are done
  };
  SharedBarrier full[Form::kStages];
  SharedBarrier empty[Form::kStages];
};

struct Fp8StreamArgs : StreamArgs {
  Fp8Activations out;  ///< for gate and up
};

template <class Form>
__device__ __forceinline__ void copy_fp8_weights(const StreamArgs& args, const CUtensorMap& map,
                                                 Fp8Shared<Form>& shared, int stage, uint64_t policy,
                                                 int32_t tile, int32_t depth) {
  arrive_expecting(shared.full[stage], Form::kWeightBytes + Form::kXBytes + Form::kScaleBytes);
#pragma unroll
  for (int slice = 0; slice < Form::kSlices; ++slice) {
    const int32_t column = depth * Form::kSlices + slice;  // index in units of 128 columns
    constexpr int kHalf = Form::kTileBytes / 8;            // in the map's elements
    void* to = shared.stages.weights[stage][slice];
    if constexpr (Form::kGateUp) {
      copy_box(to, map, shared.full[stage], policy, column % 2 * kHalf, column / 2,
               tile * (Form::kTilesAbove / 2), 0);
    } else {
      copy_box(to, map, shared.full[stage], policy, column % 2 * kHalf, column / 2, tile * Form::kTilesAbove);
    }
  }
}

template <class Form>
__device__ __forceinline__ void copy_fp8_x(const CUtensorMap& x_map, const CUtensorMap& scale_map,
                                           Fp8Shared<Form>& shared, int stage, uint64_t policy,
                                           int32_t token_block, int32_t depth) {
  copy_box(shared.stages.x[stage], x_map, shared.full[stage], policy, 0, token_block * Form::kTokens,
           depth * Form::kSlices);
#pragma unroll
  for (int slice = 0; slice < Form::kSlices; ++slice)
    copy_box(shared.stages.scales[stage][slice], scale_map, shared.full[stage], policy,
             token_block * Form::kTokens, depth * Form::kSlices + slice);
}

template <class Form>
__device__ __forceinline__ void produce_fp8(const StreamArgs& args, const CUtensorMap& weight_map,
                                            const CUtensorMap& x_map, const CUtensorMap& scale_map,
                                            Fp8Shared<Form>& shared) {
  const uint64_t once = args.by_rounds ? read_often_policy() : read_once_policy(),
                 often = read_often_policy();
  StreamSchedule schedule(args);
  StreamSegment segment;
  schedule.take(segment);
  const int32_t ahead = min(Form::kStages, segment.count);
  for (int32_t i = 0; i < ahead; ++i)
    copy_fp8_weights<Form>(args, weight_map, shared, i, once, segment.tile, segment.first + i);
  begin_kernel({});
  RingPosition<Form::kStages> ring;
  int32_t done = 0;
  do {
    for (int32_t i = 0; i < segment.count; ++i, ++done) {
      if (done >= ahead) {
        if (done >= Form::kStages) wait(shared.empty[ring.stage], ring.parity ^ 1);
        copy_fp8_weights<Form>(args, weight_map, shared, ring.stage, once, segment.tile, segment.first + i);
      }
      copy_fp8_x<Form>(x_map, scale_map, shared, ring.stage, often, segment.token_block, segment.first + i);
      ring.advance();
    }
  } while (schedule.take(segment));
}

/// The scales of x that a lane needs in a slice: of each eight tokens the two whose sums it has.
template <class Form>
struct XScales {
  uint32_t pairs[Form::kTokens / 8];

  __device__ __forceinline__ explicit XScales(const uint16_t* scales) {
#pragma unroll
    for (int i = 0; i < Form::kTokens / 8; ++i)
      pairs[i] = *reinterpret_cast<const uint32_t*>(scales + 8 * i + 2 * lane_in_group());
  }
  __device__ __forceinline__ float even(int i) const {
    return __uint_as_float(pairs[i] << 16);
  }
  __device__ __forceinline__ float odd(int i) const {
    return __uint_as_float(pairs[i] & 0xffff0000u);
  }
};

/// The tile of 16 rows in a block that a warp multiplies in a turn.
template <class Form>
__device__ __forceinline__ int tile_of_turn(int turn) {
  const int warp = static_cast<int>(threadIdx.x) / 32;  // among all that multiply
  return Form::kGateUp ? turn * (Form::kTilesAbove / 2) + warp : turn * (Form::kConsumers / 32) + warp;
}

/// sums += the products of one slice with a warp's 16 rows, times the scales of x.
template <class Form>
__device__ __forceinline__ void add_slice(const unsigned char* tile, uint64_t x, const XScales<Form>& scales,
                                          float (&sums)[Form::kTokens / 2]) {
  uint32_t operands[4][4];
#pragma unroll
  for (int step = 0; step < 4; ++step)
    load_matrices(operands[step], shared_address(tile + 512 * step + 16 * (threadIdx.x % 32)));
#pragma unroll
  for (int first = 0; first < Form::kTokens; first += Form::kSome) {
    float products[Form::kSome / 2];
    begin_products();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      multiply_e4m3(products, operands[step], advanced(x, first * kSliceRowBytes + 32 * step), step > 0);
    commit_products();
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < Form::kSome / 8; ++i) {
      const int eight = first / 8 + i;
      const float even = scales.even(eight), odd = scales.odd(eight);
      float* to = sums + 4 * eight;
      to[0] = fmaf(products[4 * i], even, to[0]);
      to[1] = fmaf(products[4 * i + 1], odd, to[1]);
      to[2] = fmaf(products[4 * i + 2], even, to[2]);
      to[3] = fmaf(products[4 * i + 3], odd, to[3]);
    }
  }
}

/// The scales of the two rows that a lane has in a turn.
template <class Form>
__device__ __forceinline__ float2 weight_scales(const ProductArgs& output, int32_t tile, int turn) {
  const bool is_up = Form::kGateUp && turn == 1;
  const int32_t strip = tile * (Form::kOutRows / kStripRows) + tile_of_turn<Form>(is_up ? 0 : turn);
  if (strip * kStripRows >= output.rows) return {};
  const int64_t tiles = (output.cols + kTileCols - 1) / kTileCols;
  const auto* scales = static_cast<const char*>(is_up ? output.up : output.weight) +
                       strip * tiles * Tile<DType::fp8>::kBytes + Tile<DType::fp8>::kScalesAt;
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(scales + 8 * lane_group()));
}

/// Gate and up become FP8. A lane has rows g and g + 8 of its warp's 16 columns, whose codes are neighbours.
template <class Form>
__device__ __forceinline__ void store_gate_up(const Fp8StreamArgs& args, Fp8Shared<Form>& shared,
                                              const StreamSegment& segment,
                                              float (&sums)[2][Form::kTokens / 2]) {
  const ProductArgs& output = args.output;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int32_t column = segment.tile * kFp8Columns + 16 * warp + lane_group();
  const auto bias_of = [&](const float* bias) {
    return bias == nullptr ? float2{} : float2{bias[column], bias[column + 8]};
  };
  const float2 gate_bias = bias_of(output.bias), up_bias = bias_of(output.up_bias);
  with_gate(output.activation, [&](const auto& gated) {
#pragma unroll
    for (int i = 0; i < Form::kTokens / 2; ++i) {
      const bool first = i % 4 < 2;
      sums[0][i] = gated(sums[0][i] + (first ? gate_bias.x : gate_bias.y),
                         sums[1][i] + (first ? up_bias.x : up_bias.y));
    }
  });
#pragma unroll
  for (int i = 0; i < Form::kTokens / 4; ++i) {
    const int at = i / 2 * 4 + i % 2, token = i / 2 * 8 + 2 * lane_in_group() + i % 2;
    float largest = fmaxf(fabsf(sums[0][at]), fabsf(sums[0][at + 2]));
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2)
      largest = fmaxf(largest, __shfl_xor_sync(kWholeWarp, largest, distance));
    if (lane_group() == 0) shared.largest[warp][token] = largest;
  }
  barrier_of_block<Form::kConsumerGroups>();
  const int32_t first_token = segment.token_block * Form::kTokens;
  if (thread < Form::kTokens) {
    float largest = 0.0f;
#pragma unroll
    for (int other = 0; other < Form::kConsumers / 32; ++other)
      largest = fmaxf(largest, shared.largest[other][thread]);
    const Fp8Scale scale(largest);
    shared.inverse_scales[thread] = scale.inverse;
    if (first_token + thread < output.tokens)
      args.out.scales[int64_t{segment.tile} * args.out.scale_stride + first_token + thread] = scale.bits;
  }
  barrier_of_block<Form::kConsumerGroups>();
#pragma unroll
  for (int i = 0; i < Form::kTokens / 4; ++i) {
    const int at = i / 2 * 4 + i % 2, token = i / 2 * 8 + 2 * lane_in_group() + i % 2;
    const float inverse = shared.inverse_scales[token];
    *reinterpret_cast<__nv_fp8x2_storage_t*>(&shared.codes[token][16 * warp + 2 * lane_group()]) =
        __nv_cvt_float2_to_fp8x2({sums[0][at] * inverse, sums[0][at + 2] * inverse}, __NV_SATFINITE,
                                 __NV_E4M3);
  }
  barrier_of_block<Form::kConsumerGroups>();
#pragma unroll
  for (int i = thread; i < Form::kTokens * kFp8Columns / 16; i += Form::kConsumers) {
    const int token = i / (kFp8Columns / 16), piece = i % (kFp8Columns / 16) * 16;
    if (first_token + token < output.tokens)
      *reinterpret_cast<uint4*>(args.out.codes + int64_t{first_token + token} * args.out.cols +
                                segment.tile * kFp8Columns + piece) =
          *reinterpret_cast<const uint4*>(&shared.codes[token][piece]);
  }
}

template <class Form>
__device__ __forceinline__ void finish_fp8_segment(const Fp8StreamArgs& args, Fp8Shared<Form>& shared,
                                                   int warpgroup, const StreamSegment& segment,
                                                   float (&sums)[Form::kTurns][Form::kTokens / 2]) {
  float2 scales[Form::kTurns];
#pragma unroll
  for (int turn = 0; turn < Form::kTurns; ++turn)
    scales[turn] = weight_scales<Form>(args.output, segment.tile, turn);
#pragma unroll
  for (int turn = 0; turn < Form::kTurns; ++turn) {
    const int row_group = turn * Form::kConsumerGroups + warpgroup;
#pragma unroll
    for (int i = 0; i < Form::kTokens / 2; ++i)
      sums[turn][i] *= i % 4 < 2 ? scales[turn].x : scales[turn].y;
    StreamSums<Form>& rows = sums[turn];
    if constexpr (!Form::kGateUp) {
      finish_segment<Form>(args, shared, row_group, segment, rows);
    } else if (segment.first > 0) {
      leave_sums<Form>(args, row_group, rows);
    } else if (segment.count < args.depth) {
      add_left_sums<Form>(args, row_group, rows);
    }
  }
  if constexpr (Form::kGateUp) {
    if (segment.first == 0) store_gate_up<Form>(args, shared, segment, sums);
  }
}

template <class Form>
__device__ __forceinline__ void consume_fp8(const Fp8StreamArgs& args, Fp8Shared<Form>& shared) {
  const int warpgroup = static_cast<int>(threadIdx.x) / 128;
  const bool is_first_of_warp = threadIdx.x % 32 == 0;
  const uint32_t x = shared_address(shared.stages.x[0]);
  RingPosition<Form::kStages> ring;
  StreamSchedule schedule(args);
  StreamSegment segment;
  while (schedule.take(segment)) {
    float sums[Form::kTurns][Form::kTokens / 2] = {};
    for (int32_t i = 0; i < segment.count; ++i) {
      wait(shared.full[ring.stage], ring.parity);
#pragma unroll
      for (int slice = 0; slice < Form::kSlices; ++slice) {
        const uint64_t tokens =
            matrix_descriptor(same_in_warp(x + ring.stage * Form::kXBytes + slice * Form::kXSliceBytes));
        const XScales<Form> scales(shared.stages.scales[ring.stage][slice]);
#pragma unroll
        for (int turn = 0; turn < Form::kTurns; ++turn)
          add_slice<Form>(shared.stages.weights[ring.stage][slice][tile_of_turn<Form>(turn)], tokens, scales,
                          sums[turn]);
      }
      __syncwarp();
      if (is_first_of_warp) arrive(shared.empty[ring.stage]);
      ring.advance();
    }
    finish_fp8_segment<Form>(args, shared, warpgroup, segment, sums);
  }
}

template <class Form>
__global__ void __launch_bounds__(Form::kThreads, 1)
    fp8_stream_kernel(const __grid_constant__ Fp8StreamArgs args,
                      const __grid_constant__ CUtensorMap weight_map,
                      const __grid_constant__ CUtensorMap x_map,
                      const __grid_constant__ CUtensorMap scale_map, Stamp stamp) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Fp8Shared<Form>*>(shared_bytes);
  allow_next_kernel();
  if (threadIdx.x == 0) {
    prefetch_map(weight_map);
    prefetch_map(x_map);
    prefetch_map(scale_map);
    for (int stage = 0; stage < Form::kStages; ++stage) {
      make_barrier(shared.full[stage], 1);
      make_barrier(shared.empty[stage], Form::kConsumers / 32);
    }
    fence_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= Form::kConsumers) {
    if constexpr (Form::kTakesRegisters) keep_registers<40>();
    threadIdx.x == Form::kConsumers ? produce_fp8<Form>(args, weight_map, x_map, scale_map, shared)
                                    : begin_kernel({});
    if (threadIdx.x / 32 == Form::kConsumers / 32 + 1) publish_left_sums<Form>(args);
  } else {
    if constexpr (Form::kTakesRegisters) take_registers<232>();
    begin_kernel(stamp);
    consume_fp8<Form>(args, shared);
  }
#else
  __trap();
#endif
}

}  // namespace minfer::cuda
