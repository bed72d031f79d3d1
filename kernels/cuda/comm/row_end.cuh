#pragma once

#include <cstdint>

#include "kernels/cuda/comm/peer_memory.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/ptx/vector8.cuh"
#include "kernels/cuda/ptx/warp.cuh"

/// The work after the parts of a row have been summed: the residual and the norm. A block takes a row. A thread
/// takes vectors of 8 elements, blockDim.x vectors apart. It keeps the first vector in registers between the
/// two passes over the row and reads the others back from x, where it has written them itself.
namespace minfer::cuda {

/// x = sum (+ x), normed = x / sqrt(mean(x^2) + eps) * norm.
template <class Out>
struct RowEnd {
  float* x;  ///< [rows, cols], rows x_stride elements apart
  int64_t x_stride;
  const float* norm;  ///< [cols]; null: no norm follows
  Out* normed;        ///< [rows, cols], rows normed_stride elements apart
  int64_t normed_stride;
  float eps;
  int32_t cols;
  bool add_to_x;
  unsigned long long* arrived;  ///< when the first row was added up, in device memory; null: nowhere
};

/// A vector's elements, of which the row has only `count`; zeros behind. kAligned: rows consist of whole vectors, 16-byte aligned.
template <bool kAligned, class T>
__device__ __forceinline__ Vector8 load_vector(const T* from, int32_t count) {
  if constexpr (kAligned) {
    return load8(from);
  } else {
    Vector8 values;
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i)
      values.at[i] = i < count ? to_f32(from[i]) : 0.0f;
    return values;
  }
}

template <bool kAligned, class T>
__device__ __forceinline__ void store_vector(T* to, int32_t count, const Vector8& values) {
  if constexpr (kAligned) {
    store8(to, values);
  } else {
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i) {
      if (i < count) to[i] = from_f32<T>(values.at[i]);
    }
  }
}

__device__ __forceinline__ void add(Vector8& to, const Vector8& values) {
#pragma unroll
  for (int i = 0; i < kVectorElements; ++i)
    to.at[i] += values.at[i];
}

/// The sum over the block, in every thread. May be called any number of times.
__device__ __forceinline__ float sum_over_block(float value) {
  __shared__ float warp_sums[kWarpSize];
  value = warp_sum(value);
  __syncthreads();  // the sums of the row before have been read
  if (threadIdx.x % kWarpSize == 0) warp_sums[threadIdx.x / kWarpSize] = value;
  __syncthreads();
  value = threadIdx.x % kWarpSize < blockDim.x / kWarpSize ? warp_sums[threadIdx.x % kWarpSize] : 0.0f;
  return warp_sum(value);
}

/// The thread's first vector of the norm's weights, which exist before the kernel in front has ended.
template <bool kAligned, class Out>
__device__ __forceinline__ Vector8 first_norm_weights(const RowEnd<Out>& end) {
  const int32_t first = static_cast<int32_t>(threadIdx.x) * kVectorElements;
  if (end.norm == nullptr || first >= end.cols) return {};
  return load_vector<kAligned>(end.norm + first, end.cols - first);
}

/// Begins a kernel that ends rows; returns the result of first_norm_weights().
template <bool kAligned, class Out>
__device__ __forceinline__ Vector8 begin_row_kernel(const RowEnd<Out>& end, const Stamps& stamps) {
  const Vector8 first_norm = first_norm_weights<kAligned>(end);
  begin_kernel(stamps);
  allow_next_kernel();
  return first_norm;
}

/// Ends a row with vectors v = sum_at(v). All threads of a block call it. `first_norm`: as above.
template <bool kAligned, class Out, class SumAt>
__device__ __forceinline__ void end_row(const RowEnd<Out>& end, int64_t row, const Vector8& first_norm,
                                        SumAt&& sum_at) {
  float* x = end.x + row * end.x_stride;
  const auto first = static_cast<int32_t>(threadIdx.x) * kVectorElements;
  const auto step = static_cast<int32_t>(blockDim.x) * kVectorElements;
  Vector8 first_values{};
  float squares = 0.0f;
  for (int32_t i = first; i < end.cols; i += step) {
    Vector8 residual{};
    if (end.add_to_x) residual = load_vector<kAligned>(x + i, end.cols - i);
    Vector8 values = sum_at(i / kVectorElements);
    if (end.add_to_x) add(values, residual);
    store_vector<kAligned>(x + i, end.cols - i, values);
#pragma unroll
    for (const float value : values.at)
      squares = fmaf(value, value, squares);
    if (i == first) first_values = values;
  }
  if (end.arrived != nullptr && row == 0) {
    __syncthreads();
    if (threadIdx.x == 0) *end.arrived = global_timer();
  }
  if (end.norm == nullptr) return;
  const float scale = 1.0f / sqrtf(sum_over_block(squares) / static_cast<float>(end.cols) + end.eps);
  Out* normed = end.normed + row * end.normed_stride;
  for (int32_t i = first; i < end.cols; i += step) {
    const int32_t count = end.cols - i;
    Vector8 values = i == first ? first_values : load_vector<kAligned>(x + i, count);
    const Vector8 weights = i == first ? first_norm : load_vector<kAligned>(end.norm + i, count);
#pragma unroll
    for (int at = 0; at < kVectorElements; ++at)
      values.at[at] = values.at[at] * scale * weights.at[at];
    store_vector<kAligned>(normed + i, count, values);
  }
}

}  // namespace minfer::cuda
