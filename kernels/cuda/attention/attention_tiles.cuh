#pragma once

#include <cstdint>

#include "kernels/cuda/device/element.cuh"

/// What the tensor-core attention kernels are made of: asynchronous copies, a shared-memory layout without
/// bank conflicts, matrix fragments and m16n8k16 products (PTX ISA, "Matrix fragments for mma.m16n8k16").
namespace minfer::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Copies 16 bytes from global to shared memory past L1, or writes zeros where `valid` is false.
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Until all but the last `kPending` groups of this thread's copies have arrived.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Rows of kRowBytes in shared memory whose 16-byte pieces are permuted, so that the same piece of eight
/// neighbouring rows lies in eight different bank groups.
template <int kRowBytes>
struct SharedRows {
  static constexpr int kPieces = kRowBytes / 16;
  static constexpr int kRowsPerLine = kRowBytes % 128 == 0 ? 1 : kRowBytes % 64 == 0 ? 2 : 4;
  static_assert(kRowBytes % 32 == 0);

  static __device__ __forceinline__ int offset(int row, int piece) {
    return row * kRowBytes + ((piece ^ ((row / kRowsPerLine) % (8 / kRowsPerLine))) * 16);
  }
};

/// Four 8x8 matrices of 16-bit elements; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&matrix)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(shared)
               : "memory");
}
__device__ __forceinline__ void load_transposed(uint32_t (&matrix)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(shared)
               : "memory");
}
/// An 8x8 matrix of 16-bit elements that is spread over a warp, transposed.
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t matrix) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

/// c [16, 8] += a [16, 16] b [16, 8] with elements of T, bf16 or f16.
template <class T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ __forceinline__ void multiply_add<__nv_bfloat16>(float (&c)[4], const uint32_t (&a)[4],
                                                            uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply_add<__half>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                     uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
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
  constexpr float kLargest = 65504.0f;
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;"
      : "=r"(packed)
      : "f"(fminf(fmaxf(second, -kLargest), kLargest)), "f"(fminf(fmaxf(first, -kLargest), kLargest)));
  return packed;
}

/// A pair of bf16 as elements of T.
template <class T>
__device__ __forceinline__ uint32_t from_bf16_pair(uint32_t pair) {
  return pack<T>(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

/// The e4m3 elements in the low and in the high half of a register as f16 pairs; exact.
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
