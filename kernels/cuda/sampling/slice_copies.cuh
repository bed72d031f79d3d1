#pragma once

#include <cstdint>

#include "kernels/cuda/ptx/bulk_bytes.cuh"
#include "kernels/cuda/sampling/row_pass.cuh"

namespace minfer::cuda {

/// A block's slices of successive rows: bulk copies into the same shared memory, in parts that are read as they
/// come. Rows and slices are 16-byte aligned and multiples of 16 bytes. Compute capability 9.0 and later.
template <int kThreads>
class SliceCopies {
  static constexpr int kParts = 4;

 public:
  /// In shared memory that is used for nothing else.
  struct Memory {
    SharedBarrier came[kParts];
  };

  /// `padded`: the tokens for which `slice` has room, a multiple of 4 * kParts.
  __device__ SliceCopies(Memory& memory, const RowSlice& slice, int32_t padded)
      : memory_(memory), slice_(slice), length_(padded / kParts) {}

  /// One thread calls it. A barrier of the block follows before others wait.
  __device__ static void prepare(Memory& memory) {
    for (SharedBarrier& barrier : memory.came)
      make_barrier(barrier, 1);
  }

  /// One thread calls it, when no thread of the block needs the slice before any more: starts the copy of the
  /// slice of `row`. Each begin() has its largest(); no block ends before.
  __device__ void begin(const float* row) {
    const uint64_t policy = read_once_policy();
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      const int32_t first = part * length_;
      const int32_t bytes = min(slice_.size - first, length_) * static_cast<int32_t>(sizeof(float));
      if (bytes <= 0) {
        arrive(memory_.came[part]);
        continue;
      }
      arrive_expecting(memory_.came[part], static_cast<uint32_t>(bytes));
      copy_bytes(slice_.values + first, row + slice_.first + first, static_cast<uint32_t>(bytes),
                 memory_.came[part], policy);
    }
  }
  /// One thread calls it: makes the L2 fetch the data that a later begin() copies.
  __device__ void prefetch(const float* row) const {
    if (slice_.size <= 0) return;
    prefetch_bytes(row + slice_.first, static_cast<uint32_t>(slice_.size) * uint32_t{sizeof(float)});
  }

  /// All threads call it: waits for the slice and puts -inf behind it. Returns the largest logit that this
  /// thread saw. Other threads see the -inf behind the slice after a barrier of the block.
  __device__ __forceinline__ float largest() {
    float largest = -INFINITY;
#pragma unroll 1
    for (int part = 0; part < kParts; ++part) {
      wait(memory_.came[part], parity_);
      largest = fmaxf(largest, largest_of(slice_.values + part * length_, slice_.size - part * length_));
    }
    parity_ ^= 1;
    return largest;
  }

 private:
  /// The largest of a part with `size` tokens of the slice, or all of it. A thread writes the -inf behind them where it reads itself.
  __device__ __forceinline__ float largest_of(float* values, int32_t size) const {
    constexpr int kAtATime = 1024 / kThreads;
    const int32_t thread = 4 * static_cast<int32_t>(threadIdx.x);
    if (size < length_) {
#pragma unroll 1
      for (int32_t i = thread; i < length_; i += 4 * kThreads) {
        if (i >= size)
          *reinterpret_cast<float4*>(values + i) = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
      }
    }
    float largest = -INFINITY;
#pragma unroll 1
    for (int32_t i = thread; i < length_; i += 4 * kThreads * kAtATime) {
      float4 fours[kAtATime];
#pragma unroll
      for (int k = 0; k < kAtATime; ++k) {
        const int32_t at = i + 4 * kThreads * k;
        fours[k] = *reinterpret_cast<const float4*>(values + (at < length_ ? at : i));
      }
#pragma unroll
      for (int k = 0; k < kAtATime; ++k)
        largest = fmaxf(largest, fmaxf(fmaxf(fours[k].x, fours[k].y), fmaxf(fours[k].z, fours[k].w)));
    }
    return largest;
  }

  Memory& memory_;
  RowSlice slice_;
  int32_t length_;  ///< tokens of a part
  uint32_t parity_ = 0;
};

}  // namespace minfer::cuda
