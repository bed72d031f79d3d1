#pragma once

#include "kernels/cuda/comm/peer_memory.cuh"
#include "kernels/cuda/comm/reduction.h"
#include "kernels/cuda/comm/row_end.cuh"

namespace minfer::cuda {

template <class Normed>
RowEnd<Normed> row_end_of(const AllReduceArgs& args, unsigned long long* arrived) {
  return {.x = args.x.f32(),
          .x_stride = args.x.stride,
          .norm = static_cast<const float*>(args.norm.data),
          .normed = static_cast<Normed*>(args.normed.data),
          .normed_stride = args.normed.stride,
          .eps = args.norm_eps,
          .cols = static_cast<int32_t>(args.x.cols),
          .add_to_x = args.add_to_x,
          .arrived = arrived};
}

/// Eight elements in transfer, in pieces of 4 bytes.
template <class T>
struct Packed {
  static constexpr int kWords = kVectorElements * static_cast<int>(sizeof(T)) / 4;
  uint32_t words[kWords];
};

template <bool kAligned, class T>
__device__ __forceinline__ Packed<T> load_packed(const T* from, int32_t count) {
  Packed<T> packed;
  if constexpr (kAligned) {
#pragma unroll
    for (int i = 0; i < Packed<T>::kWords / 4; ++i) {
      const uint4 piece = reinterpret_cast<const uint4*>(from)[i];
      packed.words[4 * i] = piece.x;
      packed.words[4 * i + 1] = piece.y;
      packed.words[4 * i + 2] = piece.z;
      packed.words[4 * i + 3] = piece.w;
    }
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i)
      packed.words[i] = i < count ? __float_as_uint(from[i]) : 0u;
  } else {
    const auto bits = [&](int i) { return i < count ? uint32_t{__bfloat16_as_ushort(from[i])} : 0u; };
#pragma unroll
    for (int i = 0; i < kVectorElements / 2; ++i)
      packed.words[i] = bits(2 * i) | bits(2 * i + 1) << 16;
  }
  return packed;
}

/// A vector of a rank's own part [rows, cols], with rows `stride` elements apart.
template <bool kAligned, class T>
__device__ __forceinline__ Packed<T> load_part(const T* part, int64_t stride, int32_t cols, int64_t row,
                                               int32_t vector) {
  const int32_t first = vector * kVectorElements;
  return load_packed<kAligned>(part + row * stride + first, cols - first);
}

__device__ __forceinline__ Vector8 values_of(const Packed<float>& packed) {
  Vector8 values;
#pragma unroll
  for (int i = 0; i < kVectorElements; ++i)
    values.at[i] = __uint_as_float(packed.words[i]);
  return values;
}
__device__ __forceinline__ Vector8 values_of(const Packed<__nv_bfloat16>& packed) {
  Vector8 values;
#pragma unroll
  for (int i = 0; i < kVectorElements / 2; ++i) {
    values.at[2 * i] = __uint_as_float(packed.words[i] << 16);
    values.at[2 * i + 1] = __uint_as_float(packed.words[i] & 0xffff0000u);
  }
  return values;
}

template <class T>
__device__ __forceinline__ Packed<T> packed_of(const Vector8& values) {
  Packed<T> packed;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < kVectorElements; ++i)
      packed.words[i] = __float_as_uint(values.at[i]);
  } else {
#pragma unroll
    for (int i = 0; i < kVectorElements / 2; ++i) {
      packed.words[i] = uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(values.at[2 * i]))} |
                        uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(values.at[2 * i + 1]))} << 16;
    }
  }
  return packed;
}

}  // namespace minfer::cuda
