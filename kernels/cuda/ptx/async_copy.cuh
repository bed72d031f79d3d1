#pragma once

#include <cstdint>

/// Copies from global to shared memory that run beside the threads, past the registers and the L1
/// (cp.async).
namespace minfer::cuda {

/// A pointer to shared memory as PTX takes it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

/// Starts the copy of 16 bytes, or writes zeros if `valid` is false.
__device__ __forceinline__ void copy_async(uint32_t shared, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0)
               : "memory");
}
/// The same for 4 bytes, which need no alignment beyond their own.
__device__ __forceinline__ void copy_word_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 4 : 0)
               : "memory");
}
/// The same as copy_async() for memory that is read in order: the L2 fetches the whole line of 128 bytes.
__device__ __forceinline__ void copy_async_in_order(void* to, const void* from, bool valid = true) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
/// Prefetches the line of 128 bytes that holds `global`.
__device__ __forceinline__ void prefetch_to_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}
/// Ends a group of copies of this thread.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Waits until all but the last `kPending` groups of this thread's copies have arrived.
template <int kPending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace minfer::cuda
