#pragma once

#include <cstdint>

#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/product/stream/stream_bf16.cuh"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/cuda/ptx/bf16_pair.cuh"

/// Gate and up, if one warp has 16 rows of gate and another the same 16 rows of up. Each gives the other its sums
/// of half of the tokens, and finishes the other half in its registers, with out in bf16 (see stream_bf16.cuh).
namespace minfer::cuda {

inline constexpr int kPairTokens = 32;  ///< that a warp gives and finishes at a time

/// The shared memory of a warpgroup with two warps of gate and two of up.
struct PairedWarps {
  static constexpr int kRowBytes =
      32 * 2 + 16;  ///< of a token: 32 rows, and no two of eight tokens use one bank
  union {
    float4 given[2][2][kPairTokens / 8][32];  ///< by gate or up, rows, tokens, lane
    unsigned char rows[2 * kPairTokens][kRowBytes];
  };
};

/// Stores `tokens` tokens of a warpgroup's 32 rows, from row `first_row` of the output on; biases begin `first_bias` elements further
/// on. Token kFirst + t goes to the output's token out_of.operator()<kFirst>(t); whole warps call that together, for up to 32 tokens.
template <class Tile, class Sums, class OutOf, int kFirst = 0>
__device__ __forceinline__ void store_pairs(PairedWarps& shared, int warpgroup, const ProductArgs& args,
                                            int32_t first_row, int64_t first_bias, int32_t tokens,
                                            const Sums& sums, const OutOf& out_of) {
  if (kFirst >= tokens) return;
  constexpr int kEights = kPairTokens / 8, kHalf = Tile::kTokens / 2;
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, lane = thread % 32;
  const int of_up = warp / 2, rows = warp % 2;  // groups of 16
  const auto sums_of = [&](int first, int eight, int j) { return sums[4 * (first / 8 + eight) + j]; };
  barrier_of_warpgroup(warpgroup);  // the staged tokens before have been stored
#pragma unroll
  for (int i = 0; i < kEights; ++i) {
    float4 four;
    float* to = &four.x;
#pragma unroll
    for (int j = 0; j < 4; ++j)
      to[j] = of_up != 0 ? sums_of(kFirst, i, j) : sums_of(kHalf + kFirst, i, j);
    shared.given[of_up][rows][i][lane] = four;
  }
  barrier_of_warpgroup(warpgroup);
  float4 others[kEights];
#pragma unroll
  for (int i = 0; i < kEights; ++i)
    others[i] = shared.given[1 - of_up][rows][i][lane];
  const int32_t row = first_row + 16 * rows + lane / 4;
  const auto bias_at = [&](const float* bias, int32_t of) {
    return bias != nullptr && of < args.rows ? bias[first_bias + of] : 0.0f;
  };
  const float gate_bias[2] = {bias_at(args.bias, row), bias_at(args.bias, row + 8)};
  const float up_bias[2] = {bias_at(args.up_bias, row), bias_at(args.up_bias, row + 8)};
  uint32_t matrices[2 * kEights];
  with_gate(args.activation, [&](const auto& gated) {
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
      float values[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float own = of_up != 0 ? sums_of(kHalf + kFirst, i, j) : sums_of(kFirst, i, j);
        const float other = (&others[i].x)[j];
        values[j] =
            gated((of_up != 0 ? other : own) + gate_bias[j / 2], (of_up != 0 ? own : other) + up_bias[j / 2]);
      }
      matrices[2 * i] = bf16_pair(values[0], values[1]);
      matrices[2 * i + 1] = bf16_pair(values[2], values[3]);
    }
  });
  barrier_of_warpgroup(warpgroup);  // all have read what they were given
  const uint32_t to = shared_address(
      &shared.rows[of_up * kPairTokens + lane / 16 * 8 + lane % 8][rows * 32 + lane / 8 % 2 * 16]);
#pragma unroll
  for (int i = 0; i < kEights; i += 2) {
    const uint32_t some[4] = {matrices[2 * i], matrices[2 * i + 1], matrices[2 * i + 2], matrices[2 * i + 3]};
    store_turned(to + i * 8 * PairedWarps::kRowBytes, some);
  }
  barrier_of_warpgroup(warpgroup);
  const int token = thread / 4, piece = thread % 4;
  const auto store = [&]<int kFrom>(int staged) {
    const int32_t out = out_of.template operator()<kFrom>(token);
    if (kFrom + token < tokens && first_row + 8 * piece < args.rows)
      *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(args.out) + out * args.out_stride + first_row +
                                8 * piece) =
          *reinterpret_cast<const uint4*>(&shared.rows[staged + token][16 * piece]);
  };
  store.template operator()<kFirst>(0);
  store.template operator()<kHalf + kFirst>(kPairTokens);
  if constexpr (kFirst + kPairTokens < kHalf)
    store_pairs<Tile, Sums, OutOf, kFirst + kPairTokens>(shared, warpgroup, args, first_row, first_bias,
                                                         tokens, sums, out_of);
}

}  // namespace minfer::cuda
