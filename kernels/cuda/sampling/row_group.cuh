#pragma once

#include <cstdint>

#include <cooperative_groups.h>

/// Thread blocks that work on one row together, block `rank` on slice `rank` of it. On Hopper they are a
/// cluster and read each other's shared memory; elsewhere a group is one block.
namespace minfer::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MINFER_CLUSTER(num_blocks)
#else
#define MINFER_CLUSTER(num_blocks) __cluster_dims__(num_blocks, 1, 1)
#endif

/// Of a grid of groups of kSize blocks, kSize in a row. Every method is called by all threads of the group.
/// Between the last access to another block's memory and the end of the kernel there is a sync().
template <int kSize>
class RowGroup {
 public:
  /// What a block tells the others.
  struct alignas(16) Mail {
    uint64_t value;
    uint32_t count;
  };
  /// In shared memory.
  struct Memory {
    Mail mail[2][kSize];
  };

  __device__ explicit RowGroup(Memory& memory) : memory_(memory) {}

  /// The row of the group, or the first one that it takes.
  __device__ static int32_t row() { return static_cast<int32_t>(blockIdx.x / kSize); }
  __device__ static int32_t rank() { return static_cast<int32_t>(blockIdx.x % kSize); }

  /// A barrier of all threads of the group, after which they see what the others wrote. Before the first
  /// access to another block's memory as well: blocks do not all begin at once.
  __device__ static void sync() {
    arrive();
    wait();
  }
  /// The halves of a sync(): what a thread does between them may overlap with whatever the others do around theirs.
  __device__ static void arrive() {
#if __CUDA_ARCH__ >= 900
    if constexpr (kSize > 1) cooperative_groups::this_cluster().barrier_arrive();
#endif
  }
  __device__ static void wait() {
    if constexpr (kSize == 1) {
      __syncthreads();
    } else {
#if __CUDA_ARCH__ >= 900
      cooperative_groups::this_cluster().barrier_wait();
#endif
    }
  }

  /// Where block `rank` has what this block has at `shared`.
  template <class T>
  __device__ static T* of_rank(int32_t rank, T* shared) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kSize > 1) return cooperative_groups::this_cluster().map_shared_rank(shared, rank);
#endif
    return shared;
  }

  /// What each block passed (the same in its first kSize threads), by rank; a sync(). The answer stays valid
  /// until the next call but one.
  __device__ const Mail* gather(uint64_t value, uint32_t count = 0) {
    Mail* box = memory_.mail[turn_];
    turn_ ^= 1;
    if (threadIdx.x < kSize) *of_rank(static_cast<int32_t>(threadIdx.x), box + rank()) = Mail{value, count};
    sync();
    return box;
  }

 private:
  Memory& memory_;
  int turn_ = 0;  ///< two boxes: a block may be a call ahead of one that still reads
};

}  // namespace minfer::cuda
