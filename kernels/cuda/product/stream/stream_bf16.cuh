#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/product/stream/stream_output.cuh"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/cuda/ptx/bf16_pair.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// Moves sums from the registers of a warpgroup to rows of a bf16 output. Sums are finished in place and pass through shared memory as
/// bf16, transposed by stmatrix, for stores of 16 bytes, 64 or 128 a token. This takes half the bytes of stream_output.cuh and a fourth
/// of its barriers; it waits for nothing else. With gate and up, a thread has both sums of an element if eight rows of each alternate.
namespace minfer::cuda {

/// The part of a tile of kTileTokens that a warpgroup stages at a time: tokens x rows of the output.
template <int kTileTokens, bool kGateUp>
struct Bf16Stage {
  static constexpr int kRows = kWarpgroupRows / (kGateUp ? 2 : 1);
  static constexpr int kRowBytes = kRows * 2 + 16;  ///< of a token, so that no two of eight are in one bank
  static constexpr int kTokens = std::min(kTileTokens, kGateUp&& kTileTokens % 128 == 0 ? 128 : 64);
  static constexpr int kBytes = kTokens * kRowBytes;
  static constexpr int kPieces = kRows / 8;  ///< of 16 bytes, in a token
  /// Tokens that the warpgroup's threads store at a time.
  static constexpr int kStored = std::min(kTokens, 128 / kPieces);
};

template <class Tile>
using Bf16StageOf = Bf16Stage<Tile::kTokens, Tile::kGateUp>;

/// Lane 8 m + i gives the address of row i of matrix m, which is column i of the 8 x 8 elements in the lanes' words `matrix[m]`.
template <int kCount>
__device__ __forceinline__ void store_turned(uint32_t to, const uint32_t (&matrix)[kCount]) {
  if constexpr (kCount == 4) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                 "r"(matrix[0]), "r"(matrix[1]), "r"(matrix[2]), "r"(matrix[3])
                 : "memory");
  } else if constexpr (kCount == 2) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(matrix[0]),
                 "r"(matrix[1])
                 : "memory");
  } else {
    static_assert(kCount == 1);
    asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(to), "r"(matrix[0])
                 : "memory");
  }
}

/// Biases of a lane's rows of the output: one row of gate and up, otherwise also the row eight further on.
template <class Tile>
struct Bf16Biases {
  float first = 0.0f, second = 0.0f;  ///< of gate and of up; otherwise of the two rows

  __device__ __forceinline__ Bf16Biases(const ProductArgs& args, int32_t first_row, int64_t first_bias) {
    const int warp = static_cast<int>(threadIdx.x) / 32 % 4, of_lane = static_cast<int>(threadIdx.x) % 32 / 4;
    const int32_t row = first_row + (Tile::kGateUp ? 8 : 16) * warp + of_lane;
    const auto bias_of = [&](const float* bias, int32_t of) {
      return bias != nullptr && of < args.rows ? bias[first_bias + of] : 0.0f;
    };
    first = bias_of(args.bias, row);
    second = Tile::kGateUp ? bias_of(args.up_bias, row) : bias_of(args.bias, row + 8);
  }
};

/// Stages the sums of tokens [kFirst, kFirst + Bf16Stage::kTokens).
template <class Tile, int kFirst, class Sums, class Gated>
__device__ __forceinline__ void stage_bf16(uint32_t to, const Sums& sums, const Bf16Biases<Tile>& bias,
                                           const Gated& gated) {
  using Stage = Bf16StageOf<Tile>;
  constexpr int kEights = Stage::kTokens / 8;                 // of tokens
  constexpr int kOfEight = Tile::kGateUp ? 1 : 2;             // matrices
  constexpr int kTogether = std::min(4 / kOfEight, kEights);  // eights stored at a time
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = static_cast<int>(threadIdx.x) % 32;
  const int matrix = lane / 8 % (kTogether * kOfEight);
  to += (matrix / kOfEight * 8 + lane % 8) * Stage::kRowBytes + (warp * kOfEight + matrix % kOfEight) * 16;
#pragma unroll
  for (int eight = 0; eight < kEights; eight += kTogether) {
    uint32_t matrices[kTogether * kOfEight];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const float* four = &sums[4 * (kFirst / 8 + eight + i)];
      if constexpr (Tile::kGateUp) {
        matrices[i] = bf16_pair(gated(four[0] + bias.first, four[2] + bias.second),
                                gated(four[1] + bias.first, four[3] + bias.second));
      } else {
        matrices[2 * i] = bf16_pair(four[0] + bias.first, four[1] + bias.first);
        matrices[2 * i + 1] = bf16_pair(four[2] + bias.second, four[3] + bias.second);
      }
    }
    store_turned(to + eight * 8 * Stage::kRowBytes, matrices);
  }
}

/// Stores the staged tokens from kFirst on; a warpgroup's threads take some tokens at a time.
template <class Tile, int kFirst, class OutOf, int kDone = 0>
__device__ __forceinline__ void store_staged(const unsigned char* from, const ProductArgs& args,
                                             int32_t first_row, int32_t tokens, const OutOf& out_of) {
  using Stage = Bf16StageOf<Tile>;
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const int token = thread / Stage::kPieces, piece = thread % Stage::kPieces;
  const int32_t out = out_of.template operator()<kFirst + kDone>(token % Stage::kStored);
  if (token < Stage::kStored && kFirst + kDone + token < tokens && first_row + 8 * piece < args.rows)
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(args.out) + out * args.out_stride + first_row +
                              8 * piece) =
        *reinterpret_cast<const uint4*>(from + (kDone + token) * Stage::kRowBytes + 16 * piece);
  if constexpr (kDone + Stage::kStored < Stage::kTokens)
    store_staged<Tile, kFirst, OutOf, kDone + Stage::kStored>(from, args, first_row, tokens, out_of);
}

/// Stores `tokens` tokens of a warpgroup's rows, from row `first_row` of the output on; biases begin `first_bias` elements further
/// on. Token kFirst + t goes to the output's token out_of.operator()<kFirst>(t); whole warps call that together, for up to 32 tokens.
template <class Tile, class OutOf, class Sums, int kFirst = 0>
__device__ __forceinline__ void store_bf16(unsigned char* staged, int warpgroup, const ProductArgs& args,
                                           int32_t first_row, int64_t first_bias, int32_t tokens,
                                           const Sums& sums, const OutOf& out_of) {
  if (kFirst >= tokens) return;
  const Bf16Biases<Tile> bias(args, first_row, first_bias);
  barrier_of_warpgroup(warpgroup);  // the staged tokens before have been stored
  const auto stage = [&](const auto& gated) {
    stage_bf16<Tile, kFirst>(shared_address(staged), sums, bias, gated);
  };
  if constexpr (Tile::kGateUp) {
    with_gate(args.activation, stage);
  } else {
    stage(nullptr);
  }
  barrier_of_warpgroup(warpgroup);
  store_staged<Tile, kFirst>(staged, args, first_row, tokens, out_of);
  if constexpr (kFirst + Bf16StageOf<Tile>::kTokens < Tile::kTokens)
    store_bf16<Tile, OutOf, Sums, kFirst + Bf16StageOf<Tile>::kTokens>(staged, warpgroup, args, first_row,
                                                                       first_bias, tokens, sums, out_of);
}

}  // namespace minfer::cuda
