#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/bulk_copy.cuh"

/// Copies of contiguous bytes into shared memory (cp.async.bulk), and words sent to the shared memory of other blocks
/// of the cluster (st.async). An mbarrier at the destination counts their bytes. Compute capability 9.0 and later.
namespace minfer::cuda {

/// Starts the copy of `bytes`, a multiple of 16; both addresses are 16-byte aligned.
__device__ __forceinline__ void copy_bytes(void* to, const void* from, uint32_t bytes, SharedBarrier& barrier,
                                           uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
      "[%3], "
      "%4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier)), "l"(policy)
      : "memory");
}
/// Makes the L2 fetch the bytes.
__device__ __forceinline__ void prefetch_bytes(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
/// Called by each thread that wrote to shared memory, before a barrier of the block behind which copies
/// overwrite it. Also after an mbarrier is made, before copies use it.
__device__ __forceinline__ void fence_before_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/// Stores a word at an address_in_block(), then tells the barrier of that block that its bytes have come. Orders nothing else.
__device__ __forceinline__ void send_to_block(uint32_t address, float value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address),
      "f"(value), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void send_to_block(uint32_t address, uint64_t value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(address),
      "l"(value), "r"(barrier)
      : "memory");
}

}  // namespace minfer::cuda
