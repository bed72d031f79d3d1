#pragma once

#include <array>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/product/strip/tile_halves.cuh"
#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// A tile of a quantised weight times 2 to 8 tokens (tile_strip.cuh): x as B operands of a warp, and their product.
namespace minfer::cuda {

/// The bias of a group for two tokens: if there is room, twice, as in a lane's C.
template <DType type>
using StripBias = std::conditional_t<Tile<type>::kHasBytes, float2, float4>;

/// x of a chunk in the registers of a warp, as f16 with a power of two as unit: exact except below 2^-14 of a token's largest value.
template <DType type>
struct TileStripX {
  static constexpr int kOperands = Tile<type>::kScaleCols / 16;  ///< of a group
  static constexpr int kGroups = 16 / kOperands;
  static constexpr int kTokens = 8;
  using Bias = StripBias<type>;

  /// Loads x of a chunk through `staging`, kStaging bytes of the warp's own; a token's row begins at row_of(token). It
  /// reads whole lines: lanes that load their own operands would read eight lines at a time (4.5 us for 8 tokens of
  /// 4,096 columns on an H200). All loads are issued together. Lanes call row_of() together, for tokens below kTokens.
  template <int kStaging, class RowOf>
  __device__ __forceinline__ void bring(const RowOf& row_of, int tokens, int cols_of_all, int chunk,
                                        char* staging, int lane) {
    constexpr int kRowPad = 16;  // so that eight rows lie in different banks
    constexpr int kCols = kStaging >= kTokens * (2 * 256 + kRowPad)   ? 256
                          : kStaging >= kTokens * (2 * 128 + kRowPad) ? 128
                                                                      : 64;
    constexpr int kRowBytes = 2 * kCols + kRowPad;
    static_assert(kTokens * kRowBytes <= kStaging);
    constexpr int kParts = kTileCols / kCols, kPieces = kCols / 32;  // in a lane, for each part
    const int cols = cols_of_all - chunk * kTileCols;                // a multiple of eight
    uint4 pieces[kParts][kPieces];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int token = (32 * i + lane) / (kCols / 8);
      const auto* x = reinterpret_cast<const uint4*>(row_of(token) + chunk * kTileCols);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        const int col = part * kCols + lane % (kCols / 8) * 8;
        pieces[part][i] = token < tokens && col < cols ? x[col / 8] : uint4{};
      }
    }
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        const int token = (32 * i + lane) / (kCols / 8);
        *reinterpret_cast<uint4*>(staging + token * kRowBytes + lane % (kCols / 8) * 16) = pieces[part][i];
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
        uint32_t matrices[4];
        load_matrices(matrices, shared_address(staging + lane % 8 * kRowBytes + 64 * i + lane / 8 * 16));
        words[part * (kCols / 16) + 2 * i] = {matrices[0], matrices[1]};
        words[part * (kCols / 16) + 2 * i + 1] = {matrices[2], matrices[3]};
      }
    }
  }

  /// The same without staging.
  __device__ __forceinline__ void load(const ProductArgs& args, int chunk, int lane) {
    const int token = lane / 4;
    const bool has_token = token < args.tokens;
    const __nv_bfloat16* x = static_cast<const __nv_bfloat16*>(args.x) +
                             (has_token ? token : 0) * static_cast<int64_t>(args.x_stride) +
                             chunk * kTileCols + 2 * (lane % 4);
    const int cols = has_token ? args.cols - chunk * kTileCols : 0;
#pragma unroll
    for (int i = 0; i < 16; ++i)
      words[i] = 16 * i < cols ? x_operand(x + 16 * i) : uint2{};
  }

  /// Converts from bf16, as loaded. biases[group][t]: minus half_bias() times x, summed over the group, for
  /// tokens 2 t and 2 t + 1, as in a lane's C.
  __device__ __forceinline__ void convert(Bias (*biases)[4], int lane) {
    const int token = lane / 4;
    uint32_t most = 0;
#pragma unroll
    for (const uint2& pairs : words)
      most = __vmaxu2(most, __vmaxu2(pairs.x & kMagnitudes, pairs.y & kMagnitudes));
    most = max(most & 0xffff, most >> 16);
    most = max(most, __shfl_xor_sync(kWholeWarp, most, 1));
    most = max(most, __shfl_xor_sync(kWholeWarp, most, 2));
    const uint32_t exponent = min(most >> 7, kMostExponent);  // the largest is then below 2, or below 64
    const float steps = __uint_as_float((254 - exponent) << 23);
    const float unit = __uint_as_float(most >= kInfinity ? 0x7fffffffu : exponent << 23);
    units[0] = kHalfUnit<type> * __shfl_sync(kWholeWarp, unit, 8 * (lane % 4));
    units[1] = kHalfUnit<type> * __shfl_sync(kWholeWarp, unit, 8 * (lane % 4) + 4);

#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const uint2 pairs = words[i];
      const float2 first{steps * low_of(pairs.x), steps * high_of(pairs.x)};
      const float2 second{steps * low_of(pairs.y), steps * high_of(pairs.y)};
      words[i] = type == DType::fp8 ? uint2{half_bits(first.x, second.x), half_bits(first.y, second.y)}
                                    : uint2{half_bits(first.x, first.y), half_bits(second.x, second.y)};
    }
    __syncwarp();
    if constexpr (kHasMinimumSums) {
      store_sums(biases, 1.0f, 1.0f, lane);
      __syncwarp();
      const auto sum_of = [&](int group) {
        return reinterpret_cast<const float*>(&biases[group][token / 2])[token % 2];
      };
      const float own[2] = {sum_of(2 * (lane % 4)), sum_of(2 * (lane % 4) + 1)};
      const __half2 rounded = __floats2half2_rn(own[0], own[1]);
      sums = {half_bits(own[0], own[1]),
              half_bits(own[0] - __low2float(rounded), own[1] - __high2float(rounded))};
      __syncwarp();
    }
    if constexpr (kHasBias) store_sums(biases, -half_bias<type>(0), -half_bias<type>(1), lane);
    __syncwarp();
  }

  /// Sums of x over groups, with pairs of even number times `even` and the others times `odd`: an mma with these as weights.
  __device__ __forceinline__ void store_sums(Bias (*to)[4], float even, float odd, int lane) const {
    const uint32_t evens = half_bits(even, even), odds = half_bits(odd, odd);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      float c[4] = {};
#pragma unroll
      for (int i = kOperands * group; i < kOperands * (group + 1); ++i)
        multiply_add<__half>(c, {evens, evens, odds, odds}, words[i].x, words[i].y);
      if (lane >= 4) continue;
      if constexpr (sizeof(Bias) == sizeof(float4)) {
        to[group][lane] = {c[0], c[1], c[2], c[3]};
      } else {
        to[group][lane] = {c[0], c[1]};
      }
    }
  }

  static constexpr uint32_t kMagnitudes = 0x7fff7fffu, kInfinity = 0x7f80u, kMostExponent = 249;
  static constexpr bool kHasBias = half_bias<type>(0) != 0.0f;
  static constexpr bool kHasMinimumSums = Tile<type>::kPacksMinima;

  static __device__ __forceinline__ float low_of(uint32_t pair) {
    return __uint_as_float(pair << 16);
  }
  static __device__ __forceinline__ float high_of(uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000u);
  }
  static __device__ __forceinline__ uint32_t half_bits(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }

  uint2 words[16];  ///< B's registers for sixteen columns each
  /// q4_k, q5_k: B's registers for minima: sums over groups 2 t and 2 t + 1 as f16, then the remainders.
  uint2 sums;
  float units[2];  ///< for tokens 2 t and 2 t + 1
};

/// Minima of q4_k and q5_k without dmin, for groups 2 t and 2 t + 1, as f16.
__device__ __forceinline__ uint32_t half_minima(const SixBitScales& packed, int row) {
  const uint32_t pair = (packed.bits[row] >> 12 & 63) | (packed.bits[row] >> 2 & 63u << 16) | 0x64006400u;
  const __half2 minima = __hsub2(reinterpret_cast<const __half2&>(pair), __float2half2_rn(1024.0f));
  return reinterpret_cast<const uint32_t&>(minima);
}

/// x of a chunk for up to 8 tokens for multiply_tiles(): in registers.
template <DType type>
struct StripXInRegisters {
  const TileStripX<type>& x;
  const StripBias<type> (*biases)[4];
  int lane;

  __device__ __forceinline__ uint2 words(int, int i) const { return x.words[i]; }
  __device__ __forceinline__ StripBias<type> bias(int, int group) const { return biases[group][lane % 4]; }
  __device__ __forceinline__ uint2 sums(int) const { return x.sums; }
  __device__ __forceinline__ float unit(int, int of_pair) const { return x.units[of_pair]; }
};

/// sums += tiles of kMatrices matrices times the same x of kTiles times eight tokens; sums are laid out as in C.
template <DType type, int kMatrices, int kTiles, class X>
__device__ __forceinline__ void multiply_tiles(float (&sums)[kMatrices][kTiles][4],
                                               const TileRegisters<type> (&tiles)[kMatrices], const X& x) {
  using Layout = TileStripX<type>;
  const auto scales = [&]<int... m>(std::integer_sequence<int, m...>) {
    return std::array{TileScales<type>(tiles[m])...};
  }
  (std::make_integer_sequence<int, kMatrices>{});
  float of_tile[kMatrices][kTiles][4] = {};
#pragma unroll
  for (int group = 0; group < Layout::kGroups; ++group) {
    float c[kMatrices][kTiles][4] = {};
    if constexpr (Layout::kHasBias) {
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const StripBias<type> bias = x.bias(t, group);
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
          c[m][t][0] = bias.x, c[m][t][1] = bias.y;
          if constexpr (sizeof(bias) == sizeof(float4)) {
            c[m][t][2] = bias.z, c[m][t][3] = bias.w;
          } else {
            c[m][t][2] = bias.x, c[m][t][3] = bias.y;
          }
        }
      }
    }
#pragma unroll
    for (int i = Layout::kOperands * group; i < Layout::kOperands * (group + 1); ++i) {
      uint32_t a[kMatrices][4];
#pragma unroll
      for (int m = 0; m < kMatrices; ++m)
        tile_halves<type>(tiles[m], i, a[m]);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        const uint2 words = x.words(t, i);
#pragma unroll
        for (int m = 0; m < kMatrices; ++m)
          multiply_add<__half>(c[m][t], a[m], words.x, words.y);
      }
    }
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int row = 0; row < 2; ++row) {
        const float scale = of_group<type>(scales[m].scale[row], group);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          of_tile[m][t][2 * row] = fmaf(scale, c[m][t][2 * row], of_tile[m][t][2 * row]);
          of_tile[m][t][2 * row + 1] = fmaf(scale, c[m][t][2 * row + 1], of_tile[m][t][2 * row + 1]);
        }
      }
    }
  }
  if constexpr (Layout::kHasMinimumSums) {
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      const SixBitScales packed(tiles[m].scales);
      const uint32_t rows[2] = {half_minima(packed, 0), half_minima(packed, 1)};
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        float c[4] = {};
        const uint2 x_sums = x.sums(t);
        multiply_add<__half>(c, {rows[0], rows[1], rows[0], rows[1]}, x_sums.x, x_sums.y);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          of_tile[m][t][i] = fmaf(-packed.dmin(i / 2), c[i], of_tile[m][t][i]);
      }
    }
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float unit = x.unit(t, i % 2);
#pragma unroll
      for (int m = 0; m < kMatrices; ++m)
        sums[m][t][i] = fmaf(unit, of_tile[m][t][i], sums[m][t][i]);
    }
  }
}

}  // namespace minfer::cuda
