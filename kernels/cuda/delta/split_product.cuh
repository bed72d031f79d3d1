#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/cuda/ptx/async_copy.cuh"
#include "kernels/cuda/ptx/bf16_pair.cuh"
#include "kernels/cuda/ptx/mma.cuh"
#include "kernels/cuda/ptx/warp.cuh"

// Products of f32 on bf16 tensor cores: value = high + low to 16 bits. A product of two such operands is three
// products; the fourth is below the error. Errors are those of f32 within some 2^-17.
namespace minfer::cuda {

inline constexpr int kSplitRows = 16;

/// A matrix in two parts. Its row stride is longer than a row, so that eight rows lie in different banks.
template <int kCols>
struct SplitMatrix {
  static constexpr int kStride = kCols + 8;
  alignas(16) __nv_bfloat16 high[kSplitRows][kStride];
  alignas(16) __nv_bfloat16 low[kSplitRows][kStride];
};

/// Two values as bf16, and the remainders.
struct SplitPair {
  uint32_t high, low;

  __device__ __forceinline__ SplitPair(float first, float second) : high(bf16_pair(first, second)) {
    low = bf16_pair(first - __uint_as_float(high << 16), second - __uint_as_float(high & 0xffff0000u));
  }
};

/// An operand with 16 on its side; a lane has four pairs of it.
struct SplitFragment {
  uint32_t high[4], low[4];

  __device__ __forceinline__ void set(int i, const SplitPair& pair) {
    high[i] = pair.high;
    low[i] = pair.low;
  }
  /// From the accumulators of two neighbouring tiles.
  __device__ __forceinline__ static SplitFragment of(const float (&first)[4], const float (&second)[4]) {
    SplitFragment fragment;
    fragment.set(0, {first[0], first[1]});
    fragment.set(1, {first[2], first[3]});
    fragment.set(2, {second[0], second[1]});
    fragment.set(3, {second[2], second[3]});
    return fragment;
  }
};

/// Two neighbouring tiles of a product. Remainders of rounding have a separate sum, so that fewer products wait for each other.
struct SplitSum {
  float main[2][4] = {};
  float rest[2][4] = {};

  /// Adds a b; the tiles' b are registers 0, 1 and 2, 3 of matrix loads.
  __device__ __forceinline__ void add(const SplitFragment& a, const uint32_t (&high)[4],
                                      const uint32_t (&low)[4]) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      multiply_add<__nv_bfloat16>(rest[i], a.high, low[2 * i], low[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      multiply_add<__nv_bfloat16>(main[i], a.high, high[2 * i], high[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      multiply_add<__nv_bfloat16>(rest[i], a.low, high[2 * i], high[2 * i + 1]);
  }
  __device__ __forceinline__ float at(int tile, int e) const {
    return main[tile][e] + rest[tile][e];
  }
};

/// The address of a lane's row for a matrix load of rows [0, 16) and columns [16 step, 16 step + 16). Registers
/// 0 and 1 get the first eight rows, as the operand with rows on the side of 8 takes them.
template <int kStride>
__device__ __forceinline__ uint32_t rows_address(const __nv_bfloat16 (&matrix)[kSplitRows][kStride],
                                                 int step) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  return shared_address(&matrix[lane / 16 * 8 + lane % 8][16 * step + lane / 8 % 2 * 8]);
}
/// The same in the order of the operand with rows on the side of 16; or transposed, with columns on the side of 8 and rows summed over.
template <int kStride>
__device__ __forceinline__ uint32_t columns_address(const __nv_bfloat16 (&matrix)[kSplitRows][kStride],
                                                    int step) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  return shared_address(&matrix[lane % 16][16 * step + lane / 16 * 8]);
}

}  // namespace minfer::cuda
