#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "kernels/dtype.h"

/// Conversions between f32 and the element types of activations and KV caches, rounding to nearest even.
namespace minfer::cuda {

__device__ __forceinline__ float to_f32(float value) {
  return value;
}
__device__ __forceinline__ float to_f32(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
__device__ __forceinline__ float to_f32(__half value) {
  return __half2float(value);
}
__device__ __forceinline__ float to_f32(__nv_fp8_e4m3 value) {
  return static_cast<float>(value);
}

template <class T>
__device__ __forceinline__ T from_f32(float value);
template <>
__device__ __forceinline__ float from_f32<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_f32<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __forceinline__ __half from_f32<__half>(float value) {
  return __float2half_rn(value);
}
/// Saturates at 448, the largest e4m3.
template <>
__device__ __forceinline__ __nv_fp8_e4m3 from_f32<__nv_fp8_e4m3>(float value) {
  return __nv_fp8_e4m3(value);
}

}  // namespace minfer::cuda
