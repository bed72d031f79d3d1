#pragma once

#include <cstdint>

#include <cuda.h>

#include "kernels/cuda/ptx/async_copy.cuh"

/// Copies of whole boxes of a tensor into shared memory (TMA), and barriers in shared memory that tell when the
/// boxes have come (mbarrier). Compute capability 9.0 and later.
namespace minfer::cuda {

/// A barrier of some arrivals and, if bytes are expected, of their coming. Its phases alternate, 0 first.
using SharedBarrier = uint64_t;

/// One thread calls it; fence_barriers() and a barrier of the block follow before others use it.
__device__ __forceinline__ void make_barrier(SharedBarrier& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals)
               : "memory");
}
__device__ __forceinline__ void fence_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void arrive(SharedBarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
/// Arrives, and makes the phase wait for `bytes` bytes of copies.
__device__ __forceinline__ void arrive_expecting(SharedBarrier& barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}
/// Waits until the phase of this parity has ended.
__device__ __forceinline__ void wait(SharedBarrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}

/// A position in a ring of stages.
template <int kStages>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage < kStages) return;
    stage = 0;
    parity ^= 1;
  }
};

/// How the L2 treats the data that a copy reads.
__device__ __forceinline__ uint64_t read_once_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t read_often_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

/// Starts the copy of the box at these coordinates, innermost first; `to` is 1,024-byte aligned.
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                         uint64_t policy, int32_t c0, int32_t c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                         uint64_t policy, int32_t c0, int32_t c1, int32_t c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                         uint64_t policy, int32_t c0, int32_t c1, int32_t c2, int32_t c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, SharedBarrier& barrier,
                                         uint64_t policy, int32_t c0, int32_t c1, int32_t c2, int32_t c3,
                                         int32_t c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "l"(policy)
      : "memory");
}

/// The same to all blocks of the cluster whose bits are in `blocks`, at the same place in their memory; each one's barrier is told.
__device__ __forceinline__ void copy_box_to(uint16_t blocks, void* to, const CUtensorMap& map,
                                            SharedBarrier& barrier, uint64_t policy, int32_t c0, int32_t c1,
                                            int32_t c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5}], [%2], %6, %7;" ::"r"(shared_address(to)),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "h"(blocks), "l"(policy)
      : "memory");
}

/// A barrier of some warps of the block, with a number from 1 to 15.
__device__ __forceinline__ void barrier_of(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// Counts for the barrier of this number without waiting at it.
__device__ __forceinline__ void arrive_at(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

/// A barrier of all threads of a cluster that have not left, in two halves: stores before the first half are visible after the second.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void meet_cluster() {
  arrive_at_cluster();
  wait_for_cluster();
}
/// The address in another block of the cluster that corresponds to `shared` in this block.
__device__ __forceinline__ uint32_t address_in_block(uint32_t shared, uint32_t block) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared), "r"(block));
  return remote;
}
/// Arrives at a barrier of a block of the cluster (address_in_block()). Orders only the reads of products.
__device__ __forceinline__ void arrive_in_block(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// The same, ordered after this thread's stores there, for a thread that waits with wait_for_cluster().
__device__ __forceinline__ void publish_in_block(uint32_t barrier) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void store_in_block(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
/// wait(), for arrivals with publish_in_block().
__device__ __forceinline__ void wait_for_cluster(SharedBarrier& barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}
/// Four floats from the shared memory of a block of the cluster, at the place of `shared` in this block.
__device__ __forceinline__ float4 load_from_block(uint32_t shared, uint32_t block) {
  float4 value;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
      : "r"(shared), "r"(block)
      : "memory");
  return value;
}

}  // namespace minfer::cuda
