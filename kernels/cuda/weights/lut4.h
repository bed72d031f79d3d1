#pragma once

#include <bit>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "kernels/quant_types.h"

/// lut4, the device type of the formats with a grid (quant_grids.h): four-bit codes into a table of sixteen
/// numbers, a six-bit scale for 16 elements, an f16 d for 256. Value: d * factor * s * table[code]. Each format has
/// few numbers, and its scales are odd and below 32, so nothing is rounded. A tile brings its format's table and
/// factor, so that one compiled kernel serves all formats. An element takes 4.5 bits, where the files take 1.6 to
/// 3.4: an index into a grid stands for eight columns of a row, and no lane of a warp has eight columns of a row.
namespace minfer::cuda {

/// The numbers of a format's blocks, and the factor of d.
template <class Block>
struct Lut4;

template <>
struct Lut4<BlockIq2Xxs> {
  static constexpr float kFactor = 0.125f;
  __host__ __device__ static constexpr int number(int code) {
    const int magnitude = code % 8 == 0 ? 8 : code % 8 == 1 ? 25 : 43;
    return code < 8 ? magnitude : -magnitude;
  }
};
template <>
struct Lut4<BlockIq2Xs> : Lut4<BlockIq2Xxs> {};
template <>
struct Lut4<BlockIq2S> : Lut4<BlockIq2Xxs> {};

template <>
struct Lut4<BlockIq3Xxs> {
  static constexpr float kFactor = 0.25f;
  __host__ __device__ static constexpr int number(int code) {
    const int magnitude = code % 8 < 7 ? 4 + 8 * (code % 8) : 62;
    return code < 8 ? magnitude : -magnitude;
  }
};

template <>
struct Lut4<BlockIq3S> {
  static constexpr float kFactor = 1.0f;
  __host__ __device__ static constexpr int number(int code) {
    const int magnitude = 2 * (code % 8) + 1;
    return code < 8 ? magnitude : -magnitude;
  }
};

/// Eight times -1, 0 or 1, plus or minus one: the eighth that is added or subtracted.
template <>
struct Lut4<BlockIq1S> {
  static constexpr float kFactor = 0.125f;
  __host__ __device__ static constexpr int number(int code) {
    return 8 * (code % 8 - 1) + (code < 8 ? 1 : -1);
  }
};
template <>
struct Lut4<BlockIq1M> : Lut4<BlockIq1S> {};

template <class Block>
concept GridBlock = requires {
  Lut4<Block>::kFactor;
};

/// Word i of the eight words behind the halves d of a tile: the table, the factor, zeros.
template <class Block>
__host__ __device__ constexpr uint32_t lut4_word(int i) {
  if (i == 4) return std::bit_cast<uint32_t>(Lut4<Block>::kFactor);
  uint32_t word = 0;
  for (int j = 0; i < 4 && j < 4; ++j)
    word |= static_cast<uint32_t>(static_cast<uint8_t>(Lut4<Block>::number(4 * i + j))) << (8 * j);
  return word;
}

}  // namespace minfer::cuda
