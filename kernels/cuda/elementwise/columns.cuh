#pragma once

#include "kernels/cuda/ptx/element.cuh"
#include "kernels/tensor_view.h"

/// Kernels over the elements of rows: blocks (x: row, y: 2,048 columns) of 256 threads with eight columns each.
/// Accesses have 16 bytes of bf16 (32 of f32) if all rows are aligned, otherwise one element.
namespace minfer::cuda {

inline constexpr int kColumnsThreads = 256;
inline constexpr int kColumns = 8;  ///< of a thread

/// The thread's first column.
__device__ __forceinline__ int64_t first_column() {
  return (static_cast<int64_t>(blockIdx.y) * kColumnsThreads + threadIdx.x) * kColumns;
}

/// The first kColumns of `count` elements, zeros behind.
template <class T, bool kAligned>
__device__ void load_columns(const T* from, int64_t count, float (&values)[kColumns]) {
  struct alignas(kAligned ? 16 : sizeof(T)) Elements {
    T values[kColumns];
  };
  if (kAligned && count >= kColumns) {
    const Elements elements = *reinterpret_cast<const Elements*>(from);
#pragma unroll
    for (int i = 0; i < kColumns; ++i)
      values[i] = to_f32(elements.values[i]);
    return;
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    values[i] = i < count ? to_f32(from[i]) : 0.0f;
}

template <class T, bool kAligned>
__device__ void store_columns(T* to, int64_t count, const float (&values)[kColumns]) {
  struct alignas(kAligned ? 16 : sizeof(T)) Elements {
    T values[kColumns];
  };
  Elements elements;
#pragma unroll
  for (int i = 0; i < kColumns; ++i)
    elements.values[i] = from_f32<T>(values[i]);
  if (kAligned && count >= kColumns) {
    *reinterpret_cast<Elements*>(to) = elements;
    return;
  }
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    if (i < count) to[i] = elements.values[i];
  }
}

inline dim3 columns_grid(const Tensor& out) {
  constexpr int64_t kColsPerBlock = kColumnsThreads * kColumns;
  return {static_cast<unsigned>(out.rows),
          static_cast<unsigned>((out.cols + kColsPerBlock - 1) / kColsPerBlock)};
}

/// True if vectors of 16 bytes of bf16 (32 of f32) are aligned in all rows.
inline bool columns_aligned(const Tensor& tensor) {
  return tensor.stride % kColumns == 0 && reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0;
}

}  // namespace minfer::cuda
