#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// Shared by the tensor-core attention kernels: a shared-memory layout without bank conflicts, pairs of
/// elements as operands, and the exponential of the softmax.
namespace minfer::cuda {

/// Rows of kRowBytes in shared memory whose 16-byte pieces are permuted, so that the same piece of eight
/// neighbouring rows lies in eight different bank groups. An odd number of pieces does that by itself.
template <int kRowBytes>
struct SharedRows {
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kRowsPerLine = kRowBytes % 128 == 0 ? 1 : kRowBytes % 64 == 0 ? 2 : 4;
  static_assert(kRowBytes % 16 == 0);

  static __device__ __forceinline__ int offset(int row, int piece) {
    if constexpr (kPieces % 2 == 1) return row * kRowBytes + piece * 16;
    return row * kRowBytes + ((piece ^ ((row / kRowsPerLine) % (8 / kRowsPerLine))) * 16);
  }
};

/// Clamps to the range of f16; NaN stays NaN.
__device__ __forceinline__ float saturated_f16(float value) {
  constexpr float kLargest = 65504.0f;
  float result;
  asm("{\n.reg .f32 low;\nmax.NaN.f32 low, %1, %2;\nmin.NaN.f32 %0, low, %3;\n}"
      : "=f"(result)
      : "f"(value), "f"(-kLargest), "f"(kLargest));
  return result;
}

/// Two values as elements of T in a register, the first in the low half. f16 saturates.
template <class T>
__device__ __forceinline__ uint32_t pack(float first, float second);
template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float first, float second) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(second), "f"(first));
  return packed;
}
template <>
__device__ __forceinline__ uint32_t pack<__half>(float first, float second) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(saturated_f16(second)), "f"(saturated_f16(first)));
  return packed;
}

/// A pair of bf16 as elements of T.
template <class T>
__device__ __forceinline__ uint32_t from_bf16_pair(uint32_t pair) {
  return pack<T>(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/// The e4m3 elements in the low and in the high half of a register, as f16 pairs; exact.
__device__ __forceinline__ uint32_t widen_low(uint32_t four) {
  const __half2_raw pair =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(four & 0xffffu), __NV_E4M3);
  return static_cast<uint32_t>(pair.x) | static_cast<uint32_t>(pair.y) << 16;
}
__device__ __forceinline__ uint32_t widen_high(uint32_t four) {
  return widen_low(four >> 16);
}

/// 2^x to about 2 ulp; 0 for -infinity.
__device__ __forceinline__ float exp2_approx(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace minfer::cuda
