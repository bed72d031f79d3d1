#pragma once

#include "kernels/cuda/ptx/element.cuh"

/// Loads and stores of two neighbouring elements, as f32 in registers. Addresses are aligned to both
/// elements.
namespace minfer::cuda {

__device__ __forceinline__ float2 load_pair(const float* at) {
  return *reinterpret_cast<const float2*>(at);
}
__device__ __forceinline__ float2 load_pair(const __nv_bfloat16* at) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(at));
}

__device__ __forceinline__ void store_pair(float* at, float2 value) {
  *reinterpret_cast<float2*>(at) = value;
}
__device__ __forceinline__ void store_pair(__nv_bfloat16* at, float2 value) {
  *reinterpret_cast<__nv_bfloat162*>(at) = __float22bfloat162_rn(value);
}
__device__ __forceinline__ void store_pair(__half* at, float2 value) {
  *reinterpret_cast<__half2*>(at) = __float22half2_rn(value);
}
/// Saturates at 448, the largest e4m3.
__device__ __forceinline__ void store_pair(__nv_fp8_e4m3* at, float2 value) {
  *reinterpret_cast<__nv_fp8x2_storage_t*>(at) = __nv_cvt_float2_to_fp8x2(value, __NV_SATFINITE, __NV_E4M3);
}

}  // namespace minfer::cuda
