#pragma once

#include <cooperative_groups.h>

/// Thread blocks that share work: on Hopper a cluster of kRanks blocks that follow one another in the grid, which reach each other's
/// shared memory. Of one block everything here is of that block alone, so kernels are written once for both.
namespace minfer::cuda {

template <int kRanks>
struct Team {
  static __device__ __forceinline__ int rank() { return static_cast<int>(blockIdx.x) % kRanks; }
  static __device__ __forceinline__ int index() { return static_cast<int>(blockIdx.x) / kRanks; }
  static __device__ __forceinline__ int count() { return static_cast<int>(gridDim.x) / kRanks; }

  /// A barrier of all threads, after which they see what the others wrote; in halves, too. Blocks do not all begin at once: there is one
  /// before the first access to another's memory, and one between the last and the end of the kernel.
  static __device__ __forceinline__ void arrive() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kRanks > 1) cooperative_groups::this_cluster().barrier_arrive();
#endif
  }
  static __device__ __forceinline__ void wait() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kRanks > 1) return cooperative_groups::this_cluster().barrier_wait();
#endif
    __syncthreads();
  }
  static __device__ __forceinline__ void sync() {
    arrive();
    wait();
  }

  /// Where block `rank` has what this block has at `shared`.
  template <class T>
  static __device__ __forceinline__ T* of_rank(T* shared, int rank) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kRanks > 1) return cooperative_groups::this_cluster().map_shared_rank(shared, rank);
#endif
    return shared;
  }
};

}  // namespace minfer::cuda
