#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/bulk_bytes.cuh"

namespace minfer::cuda {

/// Words that the blocks of a row send each other, in successive exchanges. They are stored asynchronously in the receivers' memory,
/// whose mbarrier counts the bytes. A barrier of the cluster would wait for all memory accesses of its threads, and drop the L1.
///
/// All threads of a block, in all blocks of the row, call the methods, except where noted. Every warp arrives
/// in its own block, so wait() is also a barrier of the block.
///
/// kBarriers = 2: every block sends words to every block in each exchange. A block that has finished an exchange has heard
/// that all others have finished the one before. So only the next exchange's words can come while a block still waits: they
/// count for the other barrier. kBarriers = 1: one block sends, and an exchange of all blocks lies between two such exchanges.
template <int kSize, int kThreads, int kBarriers>
class RowExchange {
  static constexpr int kWarpThreads = 32;

 public:
  /// In shared memory that is used for nothing else.
  struct Memory {
    SharedBarrier came[kBarriers];
  };

  __device__ explicit RowExchange(Memory& memory) : memory_(memory) {}

  /// One thread calls it, before anything else. A barrier of all threads of the row follows before the first send().
  __device__ static void prepare(Memory& memory) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kSize > 1) {
      for (SharedBarrier& barrier : memory.came)
        make_barrier(barrier, kThreads / kWarpThreads);
    }
#endif
  }

  /// The index of this exchange's barrier: the kBarriers barriers take turns.
  __device__ int turn() const {
    return position_.stage;
  }
  /// Any thread: stores `value` in block `rank` at the place of `place` in this block.
  template <class T>
  __device__ __forceinline__ void send(int32_t rank, T* place, T value) {
    if constexpr (kSize == 1) {
      *place = value;
    } else {
#if __CUDA_ARCH__ >= 900
      const auto block = static_cast<uint32_t>(rank);
      send_to_block(address_in_block(shared_address(place), block), value,
                    address_in_block(shared_address(&memory_.came[turn()]), block));
#endif
    }
  }
  /// Call it after the warp's sends and its writes to the block's own memory. `bytes`: the bytes that come to each block in this exchange.
  __device__ __forceinline__ void arrive(uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kSize > 1) {
      __syncwarp();
      SharedBarrier& barrier = memory_.came[turn()];
      if (threadIdx.x == 0) {
        arrive_expecting(barrier, bytes);
      } else if (threadIdx.x % kWarpThreads == 0) {
        minfer::cuda::arrive(barrier);
      }
    }
#endif
  }
  /// Ends the exchange: all words have come.
  __device__ __forceinline__ void wait() {
    if constexpr (kSize == 1) {
      __syncthreads();
    } else {
#if __CUDA_ARCH__ >= 900
      minfer::cuda::wait(memory_.came[turn()], position_.parity);
#endif
    }
    position_.advance();
  }

 private:
  Memory& memory_;
  RingPosition<kBarriers> position_;
};

}  // namespace minfer::cuda
