#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/fp8/fp8_gemm.h"
#include "kernels/cuda/product/stream/stream_schedule.cuh"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/cuda/ptx/bulk_copy.cuh"
#include "kernels/cuda/ptx/fp8_group.cuh"
#include "kernels/cuda/ptx/wgmma.cuh"
#include "kernels/cuda/weights/quant_tile.cuh"

/// FP8 weights times FP8 activations with many tokens on Hopper's tensor cores: the same function as fp8_stream.cuh.
///
/// Here tokens are on wgmma's side of 64 rows. A thread has two of them, so it needs only two scales of x every 128
/// columns, and 128 rows of weights are multiplied at a time. Three warpgroups of 64 tokens each fall into turns by
/// themselves: while one adds its products, times the scales, to its sums, the others multiply. Alone this takes 770
/// cycles for 128 columns of 192 tokens and 128 rows, of which the tensor cores need 768 (two warpgroups: 569 of 512).
///
/// The two blocks of a cluster have the same tokens; each reads half of them for both, and its own rows of weights. With gate and up, a
/// block has 64 rows of each, and the cluster has 128 columns of the output with one scale: the blocks tell each other the largest value.
///
/// Bytes: weights once for each tile of tokens, x once for each 256 rows, mostly from the L2.
namespace minfer::cuda {

template <int kWarpgroups_, bool kGateUp_>
struct Fp8GemmForm {
  static constexpr int kWarpgroups = kWarpgroups_;  ///< that multiply, 64 tokens each: 2 or 3
  static constexpr bool kGateUp = kGateUp_;
  static constexpr int kTokens = 64 * kWarpgroups;
  static constexpr int kConsumers = 128 * kWarpgroups;
  static constexpr int kThreads = kConsumers + 128;
  static constexpr int kRegisters = kWarpgroups == 3 ? 160 : 232;
  static constexpr int kProducerRegisters = kWarpgroups == 3 ? 32 : 40;

  static constexpr int kStrips = kGemmRows / kStripRows;  ///< of a block
  static constexpr int kWeightBytes = kGemmRows * kFp8Columns;
  static constexpr int kXBytes = kTokens * kFp8Columns;
  static constexpr int kStageBytes = kWeightBytes + kXBytes + kTokens * 2;
  static constexpr int kStages = (kMostStreamBytes - 8192) / kStageBytes;
};

template <class Form>
struct Fp8GemmShared {
  alignas(1024) unsigned char x[Form::kStages][Form::kXBytes];
  alignas(128) unsigned char weights[Form::kStages][Form::kWeightBytes];
  alignas(128) uint16_t scales[Form::kStages][Form::kTokens];
  float row_scales[2][Form::kWarpgroups][kGemmRows];  ///< for this tile and the one before
  float largest[2][Form::kTokens];                    ///< in the other block's columns, likewise
  SharedBarrier full[Form::kStages];
  SharedBarrier empty[Form::kStages];  ///< in both blocks
  SharedBarrier has_largest;
};

struct Fp8GemmArgs {
  ProductArgs output;  ///< all except x; of the weights only their scales
  Fp8Activations out;
  int32_t depth = 0;         ///< groups of 128 columns
  int32_t units = 0;         ///< tiles of a cluster
  int32_t token_blocks = 0;  ///< units with the same rows
};

/// A unit of a cluster. Units are taken in turn, those with the same rows one after the other.
struct Fp8GemmUnit {
  int32_t row_tile;  ///< of this block
  int32_t first_token;

  template <class Form>
  static __device__ __forceinline__ Fp8GemmUnit of(const Fp8GemmArgs& args, int32_t unit) {
    return {unit / args.token_blocks * kGemmBlocks + static_cast<int32_t>(blockIdx.x) % kGemmBlocks,
            unit % args.token_blocks * Form::kTokens};
  }
};

template <class Form, class Function>
__device__ __forceinline__ void for_units(const Fp8GemmArgs& args, const Function& function) {
  const auto clusters = static_cast<int32_t>(gridDim.x) / kGemmBlocks;
  for (auto unit = static_cast<int32_t>(blockIdx.x) / kGemmBlocks; unit < args.units; unit += clusters)
    function(Fp8GemmUnit::of<Form>(args, unit));
}

template <class Form>
__device__ __forceinline__ void produce_gemm(const Fp8GemmArgs& args, const CUtensorMap& weight_map,
                                             const CUtensorMap& x_map, const CUtensorMap& scale_map,
                                             Fp8GemmShared<Form>& shared) {
  constexpr int kSharedTokens = Form::kTokens / kGemmBlocks;
  constexpr uint16_t kBothBlocks = 3;
  const uint64_t often = read_often_policy();
  const int32_t block = static_cast<int32_t>(blockIdx.x) % kGemmBlocks;
  const auto copy_weights = [&](int stage, int32_t row_tile, int32_t group) {
    arrive_expecting(shared.full[stage], Form::kStageBytes);
    if constexpr (Form::kGateUp) {
      copy_box(shared.weights[stage], weight_map, shared.full[stage], often, 0,
               row_tile * (Form::kStrips / 2), 0, group % 2 * 8, group / 2);
    } else {
      copy_box(shared.weights[stage], weight_map, shared.full[stage], often, 0, row_tile * Form::kStrips,
               group % 2 * 8, group / 2);
    }
  };
  // The other block writes here too, so it must know that this block's barriers exist. It does, see meet_cluster().
  const int32_t ahead = min(Form::kStages, args.depth);
  const auto first_unit = static_cast<int32_t>(blockIdx.x) / kGemmBlocks;
  const int32_t first_tile = Fp8GemmUnit::of<Form>(args, first_unit).row_tile;
  for (int32_t i = 0; i < ahead; ++i)
    copy_weights(i, first_tile, i);
  begin_kernel({});
  RingPosition<Form::kStages> ring;
  int32_t done = 0;
  for_units<Form>(args, [&](const Fp8GemmUnit& unit) {
    for (int32_t group = 0; group < args.depth; ++group, ++done) {
      const int stage = ring.stage;
      if (done >= Form::kStages) wait(shared.empty[stage], ring.parity ^ 1);
      if (done >= ahead) copy_weights(stage, unit.row_tile, group);
      copy_box_to(kBothBlocks, &shared.x[stage][block * kSharedTokens * kFp8Columns], x_map,
                  shared.full[stage], often, 0, unit.first_token + block * kSharedTokens, group);
      copy_box(shared.scales[stage], scale_map, shared.full[stage], often, unit.first_token, group);
      ring.advance();
    }
  });
}

/// The scale of this thread's row in a tile of weights, among its warpgroup's 128 rows.
template <class Form>
__device__ __forceinline__ float row_scale(const ProductArgs& output, int32_t row_tile) {
  constexpr int kOfEach = Form::kGateUp ? kGemmRows / 2 : kGemmRows;
  const int32_t place = static_cast<int32_t>(threadIdx.x) % 128, row = row_tile * kOfEach + place % kOfEach;
  const int64_t tiles = (output.cols + kTileCols - 1) / kTileCols;
  const auto* scales = static_cast<const char*>(place < kOfEach ? output.weight : output.up) +
                       row / kStripRows * tiles * Tile<DType::fp8>::kBytes + Tile<DType::fp8>::kScalesAt;
  const uint16_t bits = *reinterpret_cast<const uint16_t*>(scales + row % 8 * 8 + row % kStripRows / 8 * 2);
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}

/// word[i] of lane t of a group becomes word[t] of lane i.
__device__ __forceinline__ void transpose_in_group(uint32_t (&words)[4]) {
  const bool is_odd = threadIdx.x % 2 != 0, is_upper = threadIdx.x % 4 >= 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t other = __shfl_xor_sync(kWholeWarp, is_odd ? words[i] : words[i + 1], 1);
    words[i] = is_odd ? other : words[i];
    words[i + 1] = is_odd ? words[i + 1] : other;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t other = __shfl_xor_sync(kWholeWarp, is_upper ? words[i] : words[i + 2], 2);
    words[i] = is_upper ? other : words[i];
    words[i + 2] = is_upper ? words[i + 2] : other;
  }
}

/// A lane's sums: for tokens g and g + 8 of its warp's sixteen, in columns 2 t and 2 t + 1 of each eight.
using Fp8GemmSums = float[kGemmRows / 2];

/// Multiplies the sums by the scales of the weights.
__device__ __forceinline__ void scale_columns(Fp8GemmSums& sums, const float* scales) {
#pragma unroll
  for (int i = 0; i < kGemmRows / 8; ++i) {
    const float2 two = *reinterpret_cast<const float2*>(scales + 8 * i + 2 * lane_in_group());
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sums[4 * i + j] *= j % 2 == 0 ? two.x : two.y;
  }
}
template <int kFirst, int kCount>
__device__ __forceinline__ void add_bias_to(Fp8GemmSums& sums, const float* bias) {
  if (bias == nullptr) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float2 two = *reinterpret_cast<const float2*>(bias + 8 * i + 2 * lane_in_group());
#pragma unroll
    for (int j = 0; j < 4; ++j)
      sums[4 * (kFirst + i) + j] += j % 2 == 0 ? two.x : two.y;
  }
}

/// From two groups of eight columns a lane gives its columns of one and gets four consecutive columns of the other.
__device__ __forceinline__ float4 four_columns(const float* eight, const float* next) {
  const bool is_odd = threadIdx.x % 2 != 0;
  const float x = __shfl_xor_sync(kWholeWarp, is_odd ? eight[0] : next[0], 1);
  const float y = __shfl_xor_sync(kWholeWarp, is_odd ? eight[1] : next[1], 1);
  return is_odd ? make_float4(x, y, next[0], next[1]) : make_float4(eight[0], eight[1], x, y);
}

/// Stores tokens `token` and `token` + 8.
__device__ __forceinline__ void store_columns(const ProductArgs& output, const Fp8GemmSums& sums,
                                              int32_t token, int32_t first_column) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t row = token + 8 * half;
    const bool is_stored = row < output.tokens;
    const int64_t at = row * output.out_stride + first_column;
    if (output.out_is_f32) {
      const int t = lane_in_group();
      float* to = static_cast<float*>(output.out) + at + 8 * (t % 2) + 4 * (t / 2);
#pragma unroll
      for (int i = 0; i < kGemmRows / 8; i += 2) {
        const float4 four = four_columns(&sums[4 * i + 2 * half], &sums[4 * i + 4 + 2 * half]);
        if (!is_stored) continue;
        if (output.add_to_out) {
          add_four(to + 8 * i, four);
        } else {
          *reinterpret_cast<float4*>(to + 8 * i) = four;
        }
      }
    } else {
      auto* to = static_cast<__nv_bfloat16*>(output.out) + at + 8 * lane_in_group();
#pragma unroll
      for (int i = 0; i < kGemmRows / 8; i += 4) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const __nv_bfloat162 two =
              __floats2bfloat162_rn(sums[4 * (i + j) + 2 * half], sums[4 * (i + j) + 2 * half + 1]);
          words[j] = reinterpret_cast<const uint32_t&>(two);
        }
        transpose_in_group(words);
        if (is_stored)
          *reinterpret_cast<uint4*>(to + 8 * i) = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

/// Gate and up become FP8. `tile`: its number among this cluster's tiles.
template <class Form>
__device__ __forceinline__ void store_gate_up(const Fp8GemmArgs& args, Fp8GemmShared<Form>& shared,
                                              Fp8GemmSums& sums, const Fp8GemmUnit& unit, int32_t tile) {
  constexpr int kOwn = kGemmRows / 4;  // of 64 columns: half of gate, half of up
  float largest[2] = {};
  with_gate(args.output.activation, [&](const auto& gated) {
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      sums[i] = gated(sums[i], sums[kOwn + i]);
      largest[i % 4 / 2] = fmaxf(largest[i % 4 / 2], fabsf(sums[i]));
    }
  });
  const int place = static_cast<int>(threadIdx.x) / 32 * 16 + lane_group();
  const uint32_t block = blockIdx.x % kGemmBlocks, other = block ^ 1;
  float(&others)[Form::kTokens] = shared.largest[tile % 2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    largest[half] = group_max(largest[half]);
    if (lane_in_group() == 0)
      store_in_block(address_in_block(shared_address(&others[place + 8 * half]), other), largest[half]);
  }
  __syncwarp();
  if (threadIdx.x % 32 == 0) publish_in_block(address_in_block(shared_address(&shared.has_largest), other));
  wait_for_cluster(shared.has_largest, tile % 2);
  const int32_t group = unit.row_tile / kGemmBlocks;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t token = unit.first_token + place + 8 * half;
    const Fp8Scale scale(fmaxf(largest[half], others[place + 8 * half]));
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float *low = &sums[8 * i + 2 * half], *high = low + 4;
      words[i] = e4m3_codes({low[0], high[0], low[1], high[1]}, scale.inverse);
    }
    transpose_in_group(words);
    if (token >= args.output.tokens) continue;  // so do all lanes of the group
    const int32_t column = group * kFp8Columns + static_cast<int32_t>(block) * 64 + 16 * lane_in_group();
    *reinterpret_cast<uint4*>(args.out.codes + int64_t{token} * args.out.cols + column) =
        make_uint4(words[0], words[1], words[2], words[3]);
    if (block == 0 && lane_in_group() == 0)
      args.out.scales[int64_t{group} * args.out.scale_stride + token] = scale.bits;
  }
}

template <class Form>
__device__ __forceinline__ void consume_gemm(const Fp8GemmArgs& args, Fp8GemmShared<Form>& shared) {
  constexpr uint32_t kPieceBytes = kGemmRows * 16;  // 16 columns of all rows
  constexpr uint32_t kCoreBytes = 8 * 16;
  const int warpgroup = static_cast<int>(threadIdx.x) / 128, lane = static_cast<int>(threadIdx.x) % 32;
  const int place = static_cast<int>(threadIdx.x) / 32 * 16 + lane_group();  // the place of a token
  const uint32_t x = shared_address(shared.x[0]) + warpgroup * 64 * kFp8Columns;
  const uint32_t weights = shared_address(shared.weights[0]);
  const uint32_t empty = address_in_block(shared_address(shared.empty), lane % kGemmBlocks);
  RingPosition<Form::kStages> ring;
  int32_t tile = 0;
  for_units<Form>(args, [&](const Fp8GemmUnit& unit) {
    const float scale = row_scale<Form>(args.output, unit.row_tile);
    Fp8GemmSums sums = {};
    for (int32_t group = 0; group < args.depth; ++group) {
      const int stage = ring.stage;
      wait(shared.full[stage], ring.parity);
      const uint64_t a = matrix_descriptor(same_in_warp(x + stage * Form::kXBytes));
      const uint64_t b =
          core_operand(same_in_warp(weights + stage * Form::kWeightBytes), kPieceBytes, kCoreBytes);
      const uint32_t first = shared.scales[stage][place], second = shared.scales[stage][place + 8];
      Fp8GemmSums products;
      begin_products();
#pragma unroll
      for (int step = 0; step < 4; ++step)
        multiply_e4m3(products, advanced(a, 32 * step), advanced(b, 2 * kPieceBytes * step), step > 0);
      commit_products();
      wait_products<0>();
      if (lane < kGemmBlocks) arrive_in_block(empty + stage * static_cast<int>(sizeof(SharedBarrier)));
      ring.advance();
      const float scales[2] = {__uint_as_float(first << 16), __uint_as_float(second << 16)};
#pragma unroll
      for (int i = 0; i < kGemmRows / 2; ++i)
        sums[i] = fmaf(products[i], scales[i % 4 / 2], sums[i]);
    }
    float(&row_scales)[kGemmRows] = shared.row_scales[tile % 2][warpgroup];
    row_scales[threadIdx.x % 128] = scale;
    barrier_of(1 + warpgroup, 128);
    scale_columns(sums, row_scales);
    constexpr int kEights = kGemmRows / 8;
    if constexpr (Form::kGateUp) {
      const int32_t column = unit.row_tile * (kGemmRows / 2);
      add_bias_to<0, kEights / 2>(sums, args.output.bias == nullptr ? nullptr : args.output.bias + column);
      add_bias_to<kEights / 2, kEights / 2>(
          sums, args.output.up_bias == nullptr ? nullptr : args.output.up_bias + column);
      store_gate_up<Form>(args, shared, sums, unit, tile);
    } else {
      const int32_t column = unit.row_tile * kGemmRows;
      add_bias_to<0, kEights>(sums, args.output.bias == nullptr ? nullptr : args.output.bias + column);
      store_columns(args.output, sums, unit.first_token + place, column);
    }
    ++tile;
  });
}

template <class Form>
__global__ void __launch_bounds__(Form::kThreads, 1)
    fp8_gemm_kernel(const __grid_constant__ Fp8GemmArgs args, const __grid_constant__ CUtensorMap weight_map,
                    const __grid_constant__ CUtensorMap x_map, const __grid_constant__ CUtensorMap scale_map,
                    Stamp stamp) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char shared_bytes[];
  auto& shared = *reinterpret_cast<Fp8GemmShared<Form>*>(shared_bytes);
  allow_next_kernel();
  if (threadIdx.x == 0) {
    prefetch_map(weight_map);
    prefetch_map(x_map);
    prefetch_map(scale_map);
    for (int stage = 0; stage < Form::kStages; ++stage) {
      make_barrier(shared.full[stage], 1);
      make_barrier(shared.empty[stage], kGemmBlocks * Form::kConsumers / 32);
    }
    make_barrier(shared.has_largest, Form::kConsumers / 32);
    fence_barriers();
  }
  meet_cluster();
  if (threadIdx.x >= Form::kConsumers) {
    keep_registers<Form::kProducerRegisters>();
    threadIdx.x == Form::kConsumers ? produce_gemm<Form>(args, weight_map, x_map, scale_map, shared)
                                    : begin_kernel({});
    __syncwarp();
  } else {
    take_registers<Form::kRegisters>();
    begin_kernel(stamp);
    consume_gemm<Form>(args, shared);
  }
  meet_cluster();  // no block leaves while the other writes here
#else
  __trap();
#endif
}

}  // namespace minfer::cuda
