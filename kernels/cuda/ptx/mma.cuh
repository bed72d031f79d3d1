#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/// Tensor-core products of a warp and the loads of their operands (PTX ISA, "Matrix fragments for
/// mma.m16n8k16").
namespace minfer::cuda {

/// c [16, 8] += a [16, 16] b [16, 8] with elements of T, bf16 or f16. Lane 4 g + t holds A's rows g (a[0],
/// a[2]) and g + 8 (a[1], a[3]), B's column g, and C's rows g (c[0], c[1]) and g + 8 (c[2], c[3]) in
/// columns 2 t and 2 t + 1. The caller chooses which of the sixteen k a lane's elements are, the same for A
/// and B.
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

/// c [16, 8] += a [16, 32] b [32, 8] with signed bytes: a register has four of them, where multiply_add() has two elements.
__device__ __forceinline__ void multiply_add_bytes(int32_t (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                   uint32_t b1) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Four 8x8 matrices of 16-bit elements from shared memory; lane l gives the address of row l % 8 of matrix
/// l / 8.
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
/// Transposes an 8x8 matrix of 16-bit elements that is spread over a warp.
__device__ __forceinline__ uint32_t transpose_matrix(uint32_t matrix) {
  uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(matrix));
  return transposed;
}

}  // namespace minfer::cuda
