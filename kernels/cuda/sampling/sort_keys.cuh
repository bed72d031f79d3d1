#pragma once

#include <cstdint>

namespace minfer::cuda {

/// Sorts keys[0, count) in shared memory, the largest first. All kThreads threads of a block call it; the keys need not
/// be complete before. Bitonic (Batcher 1968): the array has room for a power of two, and its rest is filled with 0.
template <int kThreads>
__device__ void sort_descending(uint64_t* keys, uint32_t count) {
  uint32_t size = 2;
  while (size < count)
    size *= 2;
  const uint32_t thread = threadIdx.x;
#pragma unroll 1
  for (uint32_t i = count + thread; i < size; i += kThreads)
    keys[i] = 0;
  __syncthreads();
#pragma unroll 1
  for (uint32_t ordered = 2; ordered <= size; ordered *= 2) {
#pragma unroll 1
    for (uint32_t distance = ordered / 2; distance > 0; distance /= 2) {
#pragma unroll 1
      for (uint32_t pair = thread; pair < size / 2; pair += kThreads) {
        const uint32_t a = 2 * pair - (pair & (distance - 1));
        const uint32_t b = a + distance;
        const bool descends = (a & ordered) == 0;
        const uint64_t first = keys[a];
        const uint64_t second = keys[b];
        if ((first < second) == descends) {
          keys[a] = second;
          keys[b] = first;
        }
      }
      __syncthreads();
    }
  }
}

}  // namespace minfer::cuda
