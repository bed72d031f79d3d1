#pragma once

#include "kernels/cuda/product/operands/tile_fragments.cuh"
#include "kernels/cuda/ptx/bf16_pair.cuh"

/// Weights of a tile as bf16, scaled, in the registers of a warp: operands of products that add up all columns
/// in f32 without a scale in between. Scales, minima and the weights themselves are rounded to bf16.
namespace minfer::cuda {

/// Codes of types with minima are measured from the middle of their range, and the minimum takes up the difference.
/// A weight and its parts then have the same size, and rounding the scale costs no more than rounding the weight.
template <DType type>
inline constexpr int kMiddleCode =
    Tile<type>::kHasMinima ? 1 << (Tile<type>::kLowBits + Tile<type>::kHighBits - 1) : 0;

/// A part of a tile: the part-th of kParts equal shares of its 256 columns.
template <DType type, int kParts>
struct TilePart {
  static_assert(kParts == 1 || kParts == 2);
  static constexpr int kOperands = 16 / kParts;  ///< for sixteen columns each

  TileRegisters<type> registers;

  __device__ __forceinline__ TilePart(const char* tile, int lane, int part) {
    constexpr int kQuantLoads = TileRegisters<type>::kQuantLoads / kParts;
#pragma unroll
    for (int i = 0; i < kQuantLoads; ++i)
      TileRegisters<type>::load_quants(tile, lane, part * kQuantLoads + i, registers.quants[i]);
    const char* high = tile + Tile<type>::kHighAt + 16 * lane;
    if constexpr (Tile<type>::kHighBits == 1 && kParts == 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(high + 8 * part);
      registers.high[0] = make_uint4(two.x, two.y, 0, 0);
    } else {
#pragma unroll
      for (int i = 0; i < Tile<type>::kHighBits / kParts; ++i)
        registers.high[i] =
            *reinterpret_cast<const uint4*>(high + 512 * (part * (Tile<type>::kHighBits / kParts) + i));
      if constexpr (Tile<type>::kHighBits == 1) registers.high[0] = *reinterpret_cast<const uint4*>(high);
    }
    registers.load_scales(tile, lane);
  }

  /// A number that is known only when all of the part is in registers: it combines a word of each load.
  __device__ __forceinline__ uint32_t loaded() const {
    constexpr bool kHasScales = type != DType::mxfp4 && type != DType::fp8;
    uint32_t words = kHasScales ? registers.scales.x ^ registers.scales.y : registers.d;
#pragma unroll
    for (int i = 0; i < TileRegisters<type>::kQuantLoads / kParts; ++i)
      words ^= registers.quants[i].w;
    constexpr int kHighLoads = (Tile<type>::kHighBits + kParts - 1) / kParts;
#pragma unroll
    for (int i = 0; i < kHighLoads; ++i)
      words ^= registers.high[i].x;
    if constexpr (type == DType::lut4) words ^= registers.table.x ^ __float_as_uint(registers.factor);
    return words;
  }
};

/// The scales of a part of a tile, spread over the lanes as in TileScales.
template <DType type, int kParts>
class OperandScales {
  static constexpr bool kHasMinima = Tile<type>::kHasMinima;
  static constexpr bool kSixteens = Tile<type>::kScaleCols == 16;  ///< a scale for every 16 columns, not 32
  /// A lane's scales of a row and the part.
  static constexpr int kHeld = kSixteens && kParts == 1 ? 4 : 2;
  static constexpr int kWords = kHasMinima ? kHeld : kHeld / 2;

 public:
  __device__ __forceinline__ OperandScales(const TileRegisters<type>& registers, int part)
      : first_lane_(kSixteens ? 0 : 4 / kParts * part) {
    const TileScales<type> scales(registers);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float scale[kHeld];
#pragma unroll
      for (int j = 0; j < kHeld; ++j)
        scale[j] = of_part(scales.scale[row], j, part);
      if constexpr (kHasMinima) {
#pragma unroll
        for (int j = 0; j < kHeld; ++j)
          words_[row][j] =
              bf16_pair(scale[j], fmaf(kMiddleCode<type>, scale[j], -of_part(scales.min[row], j, part)));
      } else {
#pragma unroll
        for (int j = 0; j < kHeld; j += 2)
          words_[row][j / 2] = bf16_pair(scale[j], scale[j + 1]);
      }
    }
  }

  /// Scales operand i of the part: `a` as tile_operand() leaves it without kBias and kMiddleCode.
  __device__ __forceinline__ void apply(uint32_t (&a)[4], int i) const {
    const int group = kSixteens ? i : i / 2;
    const int held = kSixteens ? i / 8 * 2 + i % 2 : group % 2;
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      if constexpr (kHasMinima) {
        const uint32_t pair = of_lane(words_[row][held], group % 8 / 2);
        const __nv_bfloat162 scale = low_of(pair), middle = high_of(pair);
        a[row] = bits_of(__hfma2(pair_of(a[row]), scale, middle));
        a[row + 2] = bits_of(__hfma2(pair_of(a[row + 2]), scale, middle));
      } else {
        const uint32_t pair = of_lane(words_[row][held / 2], group % 8 / 2);
        const __nv_bfloat162 scale = group % 2 == 0 ? low_of(pair) : high_of(pair);
        a[row] = bits_of(__hmul2(pair_of(a[row]), scale));
        a[row + 2] = bits_of(__hmul2(pair_of(a[row + 2]), scale));
      }
    }
  }

 private:
  /// Number j of the part, among a row's scales or minima in a lane.
  static __device__ __forceinline__ float of_part(const float (&held)[TileScales<type>::kCount], int j,
                                                  int part) {
    if constexpr (kSixteens && kParts == 2) return part == 0 ? held[j] : held[2 + j];
    return held[j];
  }
  __device__ __forceinline__ uint32_t of_lane(uint32_t word, int lane) const {
    return __shfl_sync(kWholeWarp, word, first_lane_ + lane, 4);
  }
  static __device__ __forceinline__ __nv_bfloat162 pair_of(uint32_t bits) {
    return reinterpret_cast<const __nv_bfloat162&>(bits);
  }
  static __device__ __forceinline__ uint32_t bits_of(__nv_bfloat162 pair) {
    return reinterpret_cast<const uint32_t&>(pair);
  }
  static __device__ __forceinline__ __nv_bfloat162 low_of(uint32_t pair) {
    return pair_of(__byte_perm(pair, pair, 0x1010));
  }
  static __device__ __forceinline__ __nv_bfloat162 high_of(uint32_t pair) {
    return pair_of(__byte_perm(pair, pair, 0x3232));
  }

  const int first_lane_;  ///< of the four lanes with the part's first scales
  uint32_t words_[2][kWords];
};

/// Sixteen columns of a part, scaled.
template <DType type, int kParts>
__device__ __forceinline__ void scaled_operand(const TilePart<type, kParts>& part,
                                               const OperandScales<type, kParts>& scales, int i,
                                               uint32_t (&a)[4]) {
  tile_operand<type, true, kMiddleCode<type>>(part.registers, i, a);
  scales.apply(a, i);
}

}  // namespace minfer::cuda
