#pragma once

#include <cuda_fp8.h>

#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/ptx/warp.cuh"
#include "kernels/fp8.h"

/// Writes activations in 8 bits (fp8_activations.h): the scale of 128 columns from their largest magnitude, and codes
/// in their order, which interleaves a lane's columns with the columns eight further on, which another lane has.
namespace minfer::cuda {

/// The scale of a group of columns, from its largest magnitude; bf16, rounded up, so that no code is beyond
/// 448. Infinite numbers and NaN make the group NaN when it is multiplied.
struct Fp8Scale {
  uint16_t bits;
  float inverse;
  __device__ __forceinline__ explicit Fp8Scale(float largest) {
    constexpr float kLeast = 1e-30f;  // its inverse is finite
    bits = fp8_scale(__float_as_uint(fmaxf(largest, kLeast)));
    inverse = 1.0f / __uint_as_float(static_cast<uint32_t>(bits) << 16);
  }
};

__device__ __forceinline__ float largest_of(const float4& values) {
  return fmaxf(fmaxf(fabsf(values.x), fabsf(values.y)), fmaxf(fabsf(values.z), fabsf(values.w)));
}

/// The largest value over `kLanes` neighbouring lanes, in each of them.
template <int kLanes>
__device__ __forceinline__ float largest_of_lanes(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2)
    value = fmaxf(value, __shfl_xor_sync(kWholeWarp, value, distance));
  return value;
}

/// Four codes, the first in the lowest byte.
__device__ __forceinline__ uint32_t e4m3_codes(const float4& values, float inverse) {
  const uint32_t low =
      __nv_cvt_float2_to_fp8x2({values.x * inverse, values.y * inverse}, __NV_SATFINITE, __NV_E4M3);
  const uint32_t high =
      __nv_cvt_float2_to_fp8x2({values.z * inverse, values.w * inverse}, __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

/// Eight codes in memory order: of columns 4 h to 4 h + 3 of sixteen, and of the columns eight further on.
__device__ __forceinline__ uint2 interleaved(uint32_t lower, uint32_t upper) {
  return {__byte_perm(lower, upper, 0x5140), __byte_perm(lower, upper, 0x7362)};
}

/// A lane brings codes of eight consecutive columns, its neighbour the other eight of sixteen. Returns the eight codes at the lane's place.
__device__ __forceinline__ uint2 exchanged_codes(uint2 own) {
  const bool is_upper = threadIdx.x % 2 != 0;
  const uint32_t other = __shfl_xor_sync(kWholeWarp, is_upper ? own.x : own.y, 1);
  return is_upper ? interleaved(other, own.y) : interleaved(own.x, other);
}

/// A warp stores 128 columns of a token, four a lane.
__device__ __forceinline__ void store_fp8(const Fp8Activations& out, int64_t token, int32_t first_column,
                                          const float4& values) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Fp8Scale scale(largest_of_lanes<32>(largest_of(values)));
  const uint32_t own = e4m3_codes(values, scale.inverse);
  const uint32_t other = __shfl_xor_sync(kWholeWarp, own, 2);
  const bool is_upper = lane % 4 >= 2;
  const uint2 both = is_upper ? interleaved(other, own) : interleaved(own, other);
  const int32_t column = first_column + lane / 4 * 16 + lane % 2 * 8 + (is_upper ? 4 : 0);
  *reinterpret_cast<uint32_t*>(out.codes + token * out.cols + column) = is_upper ? both.y : both.x;
  if (lane == 0) out.scales[first_column / kFp8Columns * int64_t{out.scale_stride} + token] = scale.bits;
}

/// Sixteen consecutive lanes store 128 columns of a token, eight a lane, from `column` on. All lanes of the
/// warp call it; lanes without `valid` store nothing.
__device__ __forceinline__ void store_fp8(const Fp8Activations& out, int64_t token, int32_t column,
                                          const float4& lower, const float4& upper, bool valid) {
  const Fp8Scale scale(largest_of_lanes<16>(fmaxf(largest_of(lower), largest_of(upper))));
  const uint2 codes = exchanged_codes({e4m3_codes(lower, scale.inverse), e4m3_codes(upper, scale.inverse)});
  if (!valid) return;
  *reinterpret_cast<uint2*>(out.codes + token * out.cols + column) = codes;
  if (threadIdx.x % 16 == 0)
    out.scales[column / kFp8Columns * int64_t{out.scale_stride} + token] = scale.bits;
}

}  // namespace minfer::cuda
