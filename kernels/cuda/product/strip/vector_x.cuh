#pragma once

#include <cstdint>

#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/ptx/warp.cuh"

/// The token of a product with one token, in the form that multipliers take.
namespace minfer::cuda {

/// Columns col and col + 1 (col even) of x: bf16, or (kNorm) f32 times the weights of the norm in front. The sums get its factor.
template <bool kNorm>
__device__ __forceinline__ float2 x_pair(const ProductArgs& args, int col) {
  if constexpr (kNorm) {
    const float2 x = *reinterpret_cast<const float2*>(static_cast<const float*>(args.x) + col);
    const float2 weight = *reinterpret_cast<const float2*>(args.norm + col);
    return {x.x * weight.x, x.y * weight.y};
  } else {
    const uint32_t bits = *reinterpret_cast<const uint32_t*>(static_cast<const __nv_bfloat16*>(args.x) + col);
    return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u)};
  }
}
__device__ __forceinline__ uint32_t bf16_bits(float2 pair) {
  const __nv_bfloat162 bits = __float22bfloat162_rn(pair);
  return reinterpret_cast<const uint32_t&>(bits);
}

/// x is an integer of 16 bits times `unit`, a power of two.
struct FixedPoint {
  float unit;   ///< NaN if any x is NaN or infinite
  float steps;  ///< 1 / unit; 0 if all x are below 2^-112
};

/// A lane's part of the 256 columns of a chunk: four pairs of columns in each of kGroups groups of 32 columns.
template <int kGroups>
struct VectorX {
  float2 pairs[kGroups][4];

  /// Pair j of group i is columns Columns::first_of(i, lane) + Columns::column_of(j, lane) of the chunk and the
  /// next one. Columns beyond the matrix are zeros; a group of 32 columns is inside or outside as a whole.
  template <class Columns, bool kNorm>
  __device__ __forceinline__ void load(const ProductArgs& args, int chunk_col, int lane) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      const int first = chunk_col + Columns::first_of(i, lane);
      const bool has_group = first < args.cols;
#pragma unroll
      for (int j = 0; j < 4; ++j)
        pairs[i][j] = has_group ? x_pair<kNorm>(args, first + Columns::column_of(j, lane)) : float2{};
    }
  }

  /// One column of each of pairs 2 r and 2 r + 1 of group i, in steps of `fixed`, as f16: the first columns of
  /// the pairs or (second) the second ones.
  __device__ __forceinline__ uint32_t halves(int i, int r, FixedPoint fixed, bool second) const {
    const float2 first = pairs[i][2 * r], last = pairs[i][2 * r + 1];
    const __half2 both = __floats2half2_rn(fixed.steps * (second ? first.y : first.x),
                                           fixed.steps * (second ? last.y : last.x));
    return reinterpret_cast<const uint32_t&>(both);
  }

  /// Pair j of group i in steps of `fixed`, as f16.
  __device__ __forceinline__ uint32_t halves(int i, int j, FixedPoint fixed) const {
    const __half2 both = __floats2half2_rn(fixed.steps * pairs[i][j].x, fixed.steps * pairs[i][j].y);
    return reinterpret_cast<const uint32_t&>(both);
  }

  /// The upper or the lower bytes of the integers of pairs 2 r and 2 r + 1 of group i. An integer is
  /// 256 upper + lower, both signed. Bytes 0 and 2 are of the first pair, 1 and 3 of the second.
  __device__ __forceinline__ uint32_t bytes(int i, int r, FixedPoint fixed, bool upper) const {
    const float2 first = pairs[i][2 * r], second = pairs[i][2 * r + 1];
    // An f32 from 2^23 on has the integer in its lowest bits. The upper byte is rounded up if the lower one is negative.
    const float base = upper ? 0x1.8p23f + 128.0f : 0x1.8p23f;
    const auto integer = [&](float value) { return __float_as_uint(fmaf(value, fixed.steps, base)); };
    const uint32_t chosen = upper ? 0x0051 : 0x0040;
    return __byte_perm(__byte_perm(integer(first.x), integer(second.x), chosen),
                       __byte_perm(integer(first.y), integer(second.y), chosen), 0x5410);
  }
};

/// For the chunk that the lanes of a warp hold together: bf16 values down to a 128th of the largest x are exact.
template <int kGroups>
__device__ __forceinline__ FixedPoint fixed_point(const VectorX<kGroups>& x) {
  constexpr uint32_t kMagnitude = 0x7fffffffu, kInfinity = 0x7f800000u;
  constexpr uint32_t kBits = 14;  // below the highest bit of the largest x
  uint32_t most = 0;
#pragma unroll
  for (const auto& group : x.pairs) {
#pragma unroll
    for (const float2& pair : group)
      most = max(most, max(__float_as_uint(pair.x) & kMagnitude, __float_as_uint(pair.y) & kMagnitude));
  }
  most = warp_most(most);
  // The largest is then below 127.5 * 256: its upper byte has a sign.
  const uint32_t exponent = (most + (1u << 17)) >> 23;
  const bool is_zero = exponent <= kBits;
  return {most >= kInfinity ? __uint_as_float(kMagnitude)
                            : __uint_as_float(is_zero ? 0u : (exponent - kBits) << 23),
          __uint_as_float(is_zero ? 0u : (254 + kBits - exponent) << 23)};
}

}  // namespace minfer::cuda
