#pragma once

#include <cstdint>

/// The tensor-core instruction of the products, and loads of weights that pass by the L1.
namespace minfer::cuda {

/// c += A B with A [16, 16] and B [16, 8] in bf16. Lane 4 g + t holds A's rows g (a[0], a[2]) and g + 8
/// (a[1], a[3]), B's column g, and C's rows g (c[0], c[1]) and g + 8 (c[2], c[3]) in columns 2 t and 2 t + 1.
/// Which of the sixteen k a lane's elements are is for the caller to choose, alike for A and B.
__device__ __forceinline__ void mma_bf16(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Loads of weights, each byte of which is used once: issued where they stand in the program, so that they
/// are in flight early.
__device__ __forceinline__ uint4 stream_load16(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}
__device__ __forceinline__ uint2 stream_load8(const void* from) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0, %1}, [%2];"
               : "=r"(v.x), "=r"(v.y)
               : "l"(from));
  return v;
}
__device__ __forceinline__ uint32_t stream_load4(const void* from) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.u32 %0, [%1];" : "=r"(v) : "l"(from));
  return v;
}

/// Word i of four; i known to the compiler.
__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

}  // namespace minfer::cuda
