#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/element.cuh"

/// Loads and stores of eight neighbouring elements as f32 in registers, in 16-byte pieces. Addresses are
/// 16-byte aligned.
namespace minfer::cuda {

struct Vector8 {
  float at[8];
};

__device__ __forceinline__ Vector8 load8(const float* from) {
  const float4 low = reinterpret_cast<const float4*>(from)[0];
  const float4 high = reinterpret_cast<const float4*>(from)[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}
__device__ __forceinline__ Vector8 load8(const __nv_bfloat16* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const uint32_t pairs[4] = {bits.x, bits.y, bits.z, bits.w};
  Vector8 values;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values.at[2 * i] = __uint_as_float(pairs[i] << 16);
    values.at[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
  return values;
}

__device__ __forceinline__ void store8(float* to, const Vector8& values) {
  const float(&v)[8] = values.at;
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
__device__ __forceinline__ void store8(__nv_bfloat16* to, const Vector8& values) {
  uint4 bits;
  auto* pairs = reinterpret_cast<__nv_bfloat162*>(&bits);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    pairs[i] = __float22bfloat162_rn(make_float2(values.at[2 * i], values.at[2 * i + 1]));
  *reinterpret_cast<uint4*>(to) = bits;
}

}  // namespace minfer::cuda
