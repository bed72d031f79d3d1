#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/bulk_bytes.cuh"

namespace minfer::cuda {

/// Words that the blocks of a row send each other, one exchange after the other: they are stored asynchronously in the receivers' memory, whose
/// mbarrier counts the bytes. A barrier of the cluster would wait for all memory that its threads have asked for, and forget the L1.
///
/// Methods are called by all threads of a block, of all blocks of the row, but where it says otherwise. Every warp arrives in its own block, so
/// wait() is a barrier of the block as well.
///
/// kBarriers = 2: every block sends words to every block in each exchange. A block that is through with an exchange has heard of all others that they
/// are through with the one before, so at most the next one's words come while a block still waits: they count for the other barrier.
/// kBarriers = 1: a block sends them, and between two such exchanges there is one of all blocks.
template <int kSize, int kThreads, int kBarriers>
class RowExchange {
  static constexpr int kWarpThreads = 32;

 public:
  /// In shared memory that is used for nothing else.
  struct Memory {
    SharedBarrier came[kBarriers];
  };

  __device__ explicit RowExchange(Memory& memory) : memory_(memory) {}

  /// One thread, first of all. A barrier of all threads of the row follows before the first send().
  __device__ static void prepare(Memory& memory) {
#if __CUDA_ARCH__ >= 900
    if constexpr (kSize > 1) {
      for (SharedBarrier& barrier : memory.came)
        make_barrier(barrier, kThreads / kWarpThreads);
    }
#endif
  }

  /// Which of kBarriers this exchange is on: they take turns.
  __device__ int turn() const {
    return position_.stage;
  }
  /// Any thread: stores `value` where block `rank` has what this block has at `place`.
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
  /// Behind what the warp sends, and what it leaves in the block's own memory. `bytes`: that come to each block in this exchange.
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
  /// Ends the exchange: all that was sent is there.
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
