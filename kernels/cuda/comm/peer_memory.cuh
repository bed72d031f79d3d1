#pragma once

#include "kernels/cuda/comm/peer_memory.h"
#include "kernels/cuda/launch/launch.h"

/// Kernels of different GPUs exchange data by stores into the receiver's memory. The receiver polls its own memory.
///
/// Every call of a kind of exchange has a number, its epoch. It is counted in device memory, so that a replayed graph counts too.
/// All blocks of a kernel read it behind begin_kernel(), after the call before has ended, and the last block to end advances it.
///
/// Data with flags (FlaggedLine, tokens) uses 64-bit relaxed.sys accesses, which the PTX memory model never tears; number
/// and data are one word. Rows with a flag a chunk use plain stores, a barrier of the block, fence.sys and a store of the
/// flag by one thread. The other side uses ld.acquire.sys of the flag by one thread and a barrier, then loads past the L1.
///
/// Polling ends when the host sets the abort word: the kernel then leaves with the data at hand, and so do all later calls at once.
namespace minfer::cuda {

/// 0 stands for memory that was never written. Even and odd calls use different memory, so the number after the last one is even.
__device__ __forceinline__ uint32_t epoch_behind(uint32_t epoch) {
  return epoch == ~0u ? 2u : epoch + 1;
}

__device__ __forceinline__ uint32_t load_relaxed(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ uint32_t load_acquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.b32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed(uint32_t* to, uint32_t value) {
  asm volatile("st.relaxed.sys.global.b32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned long long flagged(uint32_t data, uint32_t epoch) {
  return static_cast<unsigned long long>(epoch) << 32 | data;
}
__device__ __forceinline__ uint32_t epoch_of(unsigned long long word) {
  return static_cast<uint32_t>(word >> 32);
}
__device__ __forceinline__ uint32_t data_of(unsigned long long word) {
  return static_cast<uint32_t>(word);
}

__device__ __forceinline__ void store_word(unsigned long long* to, unsigned long long word) {
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(to), "l"(word) : "memory");
}
__device__ __forceinline__ unsigned long long load_word(const unsigned long long* from) {
  unsigned long long word;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(word) : "l"(from) : "memory");
  return word;
}
__device__ __forceinline__ void store_line(FlaggedLine* to, uint32_t low, uint32_t high, uint32_t epoch) {
  asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(to), "l"(flagged(low, epoch)),
               "l"(flagged(high, epoch))
               : "memory");
}
__device__ __forceinline__ FlaggedLine load_line(const FlaggedLine* from) {
  FlaggedLine line;
  asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(line.half[0]), "=l"(line.half[1])
               : "l"(from)
               : "memory");
  return line;
}
__device__ __forceinline__ bool has_come(const FlaggedLine& line, uint32_t epoch) {
  return epoch_of(line.half[0]) == epoch && epoch_of(line.half[1]) == epoch;
}

template <class T>
__device__ __forceinline__ T* part_of(const Channel& channel, int rank, int64_t offset) {
  return reinterpret_cast<T*>(channel.block[rank] + offset);
}

/// A kernel's part in a call. All threads make it behind begin_kernel(). The grid has one dimension.
class ExchangeCall {
 public:
  __device__ __forceinline__ explicit ExchangeCall(const Channel& channel)
      : channel_(channel),
        epoch_(epoch_behind(load_relaxed(&channel.state->epoch))),
        is_aborted_(load_relaxed(&channel.state->aborted) != 0) {}

  __device__ __forceinline__ uint32_t epoch() const { return epoch_; }
  /// The index, of two, of the memory that the call uses.
  __device__ __forceinline__ int parity() const { return static_cast<int>(epoch_ & 1); }
  __device__ __forceinline__ bool is_aborted() const { return is_aborted_; }

  /// Polls until has_come(), or until a rank has failed.
  template <class HasCome>
  __device__ __forceinline__ void wait(HasCome has_come) {
    for (uint32_t polls = 1; !is_aborted_ && !has_come(); ++polls) {
      if (polls % kPollsPerLook == 0 && load_relaxed(channel_.abort) != 0) {
        is_aborted_ = true;
        store_relaxed(&channel_.state->aborted, 1);
      }
    }
  }
  __device__ __forceinline__ void wait_for_flag(const uint32_t* flag) {
    wait([&] { return load_acquire(flag) == epoch_; });
  }

  /// All threads call it once, after the block's last work for the call. It needs no fence: every thread has used the epoch it read.
  __device__ __forceinline__ void end() {
    __syncthreads();
    if (threadIdx.x != 0) return;
    ChannelState& state = *channel_.state;
    if (atomicAdd(&state.finished_blocks, 1u) + 1 != gridDim.x) return;
    state.finished_blocks = 0;
    state.epoch = epoch_;
  }

 private:
  /// A look at the abort word crosses PCIe; a poll takes about half a microsecond.
  static constexpr uint32_t kPollsPerLook = 512;

  const Channel& channel_;
  uint32_t epoch_;
  bool is_aborted_;
};

}  // namespace minfer::cuda
