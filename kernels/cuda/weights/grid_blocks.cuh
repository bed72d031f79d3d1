#pragma once

#include "kernels/cuda/weights/lut4.h"
#include "kernels/cuda/weights/raw_blocks.cuh"
#include "kernels/quant_grids.h"

/// Reads the ternary formats and those with a grid element by element, like raw_blocks.cuh for the others.
/// code() is q2_k's for the ternary ones, lut4's for those with a grid.
namespace minfer::cuda {

__host__ __device__ inline int code(const BlockTq1_0& b, int k) {
  const int byte = k < 160 ? b.qs[k % 32] : k < 240 ? b.qs[32 + k % 16] : b.qh[k % 4];
  const int digit = k < 160 ? k / 32 : k < 240 ? (k - 160) / 16 : (k - 240) / 4;
  int fraction = byte;
  for (int i = 0; i < digit; ++i)
    fraction = fraction * 3 & 255;
  return fraction * 3 >> 8;
}
__host__ __device__ inline int code(const BlockTq2_0& b, int k) {
  return two_bits(b.qs, k);
}
template <class Block>
concept TernaryBlock = std::is_same_v<Block, BlockTq1_0> || std::is_same_v<Block, BlockTq2_0>;

/// A scale of 1 and a minimum of 1, as in q2_k; both multiply d.
__host__ __device__ inline int two_scales(const TernaryBlock auto&, int) {
  return 0x11;
}
__host__ __device__ inline uint16_t dmin_bits(const TernaryBlock auto& b) {
  return b.d;
}
__host__ __device__ inline int scale_byte(const TernaryBlock auto&, int) {
  return 1;
}
__host__ __device__ inline int number(const TernaryBlock auto& b, int k) {
  return code(b, k) - 1;
}

// Local constants, because the device cannot use the host's.
__host__ __device__ inline int iq2_xxs_digit(int index, int i) {
  static constexpr auto kGrid = kIq2XxsGrid;
  return kGrid[index] >> (2 * i) & 3;
}
__host__ __device__ inline int iq2_xs_digit(int index, int i) {
  static constexpr auto kGrid = kIq2XsGrid;
  return kGrid[index] >> (2 * i) & 3;
}
__host__ __device__ inline int iq2_s_digit(int index, int i) {
  static constexpr auto kGrid = kIq2SGrid;
  return kGrid[index] >> (2 * i) & 3;
}
__host__ __device__ inline int iq1_digit(int index, int i) {
  static constexpr auto kGrid = kIq1Grid;
  return kGrid[index] >> (2 * i) & 3;
}
__host__ __device__ inline int iq3_xxs_digit(int index, int i) {
  static constexpr auto kGrid = kIq3XxsGrid;
  return kGrid[index] >> (4 * i) & 7;
}
__host__ __device__ inline int iq3_s_digit(int index, int i) {
  static constexpr auto kGrid = kIq3SGrid;
  return kGrid[index] >> (4 * i) & 7;
}

__host__ __device__ inline int sign_bit(const uint8_t* signs, int k) {
  return (signs[k / 8] >> (k % 8) & 1) << 3;
}
/// The sign of element k of 32; `word` has their four sevens of signs.
__host__ __device__ inline int sign_of_sevens(uint32_t word, int k) {
  return static_cast<int>(all_signs(word) >> k & 1) << 3;
}
__host__ __device__ inline uint32_t word_at(const uint8_t* p) {
  return p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
}

__host__ __device__ inline int code(const BlockIq2Xxs& b, int k) {
  const uint8_t* group = b.qs + 8 * (k / 32);
  return iq2_xxs_digit(group[k % 32 / 8], k % 8) | sign_of_sevens(word_at(group + 4), k % 32);
}
__host__ __device__ inline int code(const BlockIq2Xs& b, int k) {
  const int q = b.qs[k / 8];
  return iq2_xs_digit(q & 511, k % 8) | sign_of_sevens(static_cast<uint32_t>(q) >> 9, k % 8);
}
__host__ __device__ inline int code(const BlockIq2S& b, int k) {
  const int index = b.qs[k / 8] | (b.qh[k / 32] >> (2 * (k / 8 % 4)) & 3) << 8;
  return iq2_s_digit(index, k % 8) | sign_bit(b.signs, k);
}
__host__ __device__ inline int code(const BlockIq3Xxs& b, int k) {
  return iq3_xxs_digit(b.qs[k / 4], k % 4) |
         sign_of_sevens(word_at(b.scales_and_signs + 4 * (k / 32)), k % 32);
}
__host__ __device__ inline int code(const BlockIq3S& b, int k) {
  const int index = b.qs[k / 4] | (b.qh[k / 32] >> (k / 4 % 8) & 1) << 8;
  return iq3_s_digit(index, k % 4) | sign_bit(b.signs, k);
}
__host__ __device__ inline int code(const BlockIq1S& b, int k) {
  const int high = b.qh[k / 32];
  return iq1_digit(b.qs[k / 8] | (high >> (3 * (k / 8 % 4)) & 7) << 8, k % 8) | high >> 15 << 3;
}
__host__ __device__ inline int code(const BlockIq1M& b, int k) {
  const int high = nibble(b.qh[k / 16], k / 8 % 2 != 0);
  return iq1_digit(b.qs[k / 8] | (high & 7) << 8, k % 8) | (high & 8);
}

/// 2 s + 1 for sub-block j of 16 elements.
__host__ __device__ inline int odd_scale(const BlockIq2Xxs& b, int j) {
  return 2 * static_cast<int>(word_at(b.qs + 8 * (j / 2) + 4) >> 28) + 1;
}
__host__ __device__ inline int odd_scale(const BlockIq2Xs& b, int j) {
  return 2 * nibble(b.scales[j / 2], j % 2 != 0) + 1;
}
__host__ __device__ inline int odd_scale(const BlockIq2S& b, int j) {
  return 2 * nibble(b.scales[j / 2], j % 2 != 0) + 1;
}
__host__ __device__ inline int odd_scale(const BlockIq3Xxs& b, int j) {
  return 2 * static_cast<int>(word_at(b.scales_and_signs + 4 * (j / 2)) >> 28) + 1;
}
__host__ __device__ inline int odd_scale(const BlockIq3S& b, int j) {
  return 2 * nibble(b.scales[j / 4], j / 2 % 2 != 0) + 1;
}
__host__ __device__ inline int odd_scale(const BlockIq1S& b, int j) {
  return 2 * (b.qh[j / 2] >> 12 & 7) + 1;
}
__host__ __device__ inline int odd_scale(const BlockIq1M& b, int j) {
  return 2 * (b.scales[j / 4] >> (3 * (j % 4)) & 7) + 1;
}

__host__ __device__ inline int six_bit_scale(const GridBlock auto& b, int j) {
  return odd_scale(b, j) + 32;
}
__host__ __device__ inline uint16_t d_bits(const BlockIq1M& b) {
  return half_of(b);
}

}  // namespace minfer::cuda
