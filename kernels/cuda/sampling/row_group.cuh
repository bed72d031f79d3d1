#pragma once

#include <cstdint>

#include <cooperative_groups.h>

/// Thread blocks that work on one row together; block `rank` works on slice `rank`. On Hopper they are a
/// cluster and read each other's shared memory; elsewhere a group is one block.
namespace minfer::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define MINFER_CLUSTER(num_blocks)
#else
#define MINFER_CLUSTER(num_blocks) __cluster_dims__(num_blocks, 1, 1)
#endif

/// A group of kSize consecutive blocks of the grid. All threads of the group call every method. A sync() lies
/// between the last access to another block's memory and the end of the kernel.
template <int kSize>
class RowGroup {
 public:
  /// A block's message to the others.
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

  /// A barrier of all threads of the group, after which they see each other's writes. It is also needed before
  /// the first access to another block's memory: blocks do not all begin at once.
  __device__ static void sync() {
    arrive();
    wait();
  }
  /// The halves of a sync(): a thread's work between them may overlap with any work of the others around theirs.
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

  /// The place in block `rank` that corresponds to `shared` in this block.
  template <class T>
  __device__ static T* of_rank(int32_t rank, T* shared) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kSize > 1) return cooperative_groups::this_cluster().map_shared_rank(shared, rank);
#endif
    return shared;
  }

  /// The values that the blocks passed, by rank (a block passes the same in its first kSize threads); a sync().
  /// The answer stays valid until the call after the next one.
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
