#pragma once

#include <cstdint>

/// The tensor-core instruction of the products, and copies to shared memory that run beside them.
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

/// Copies 16 bytes to shared memory past the registers and the L1; zeros if not `valid`.
__device__ __forceinline__ void copy_async16(void* to, const void* from, bool valid = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
/// 8 bytes, through the L1.
__device__ __forceinline__ void copy_async8(void* to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(
                   static_cast<uint32_t>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(valid ? 8 : 0)
               : "memory");
}
/// Ends a group of copies of this thread.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the last `kPending` groups have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

/// Word i of four; i known to the compiler.
__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

}  // namespace minfer::cuda
