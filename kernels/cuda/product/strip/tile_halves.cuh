#pragma once

#include "kernels/cuda/product/operands/tile_fragments.cuh"

/// Codes of a tile as f16, exact: A operands of mma.m16n8k16 with half the instructions that bf16 needs.
///
/// f16 has ten bits of mantissa, so a code can stay at its place in the word: 0x6400 | q is 1024 + q, and
/// 0x5400 | q << 4 is 64 + q. Integer instructions run at half the speed of others; 8 codes of 4 bits take 5 of them.
/// The offset beside the code in a number (half_bias()), times the sum of x, must be taken off the sum.
namespace minfer::cuda {

/// The offset that half_pair() adds to the numbers in pair `pair` of a group, with the type's own offset.
template <DType type>
__host__ __device__ constexpr float half_bias(int pair) {
  if (is_one_of<type, DType::fp8, DType::mxfp4>) return 0.0f;
  if (type == DType::q8_0) return 1024.0f + 128.0f;
  return (pair % 2 == 0 ? 1024.0f : 64.0f) + Tile<type>::kOffset;
}
/// The factor for the numbers of tile_halves().
template <DType type>
inline constexpr float kHalfUnit = type == DType::mxfp4 ? 0x1p14f : 1.0f;

/// Pair `pair` (0 ... 3) of low word `word`: codes of 4 bits with the bits of a plane above them.
template <DType type>
__device__ __forceinline__ uint32_t half_pair(const TileRegisters<type>& tile, int word, int pair) {
  static_assert(Tile<type>::kLowBits == 4);
  constexpr int kHighBits = Tile<type>::kHighBits;
  const uint32_t low = word_of(tile.quants[word / 4], word % 4);
  const uint32_t shifted = pair < 2 ? low : low >> 8;
  if (pair % 2 == 0) {
    const uint32_t half = insert_bits(shifted, 0x000f000fu, 0x64006400u);
    if constexpr (kHighBits > 0) return insert_pair<kHighBits, 4>(tile.high, word, pair, half);
    return half;
  }
  const uint32_t half = insert_bits(shifted, 0x00f000f0u, 0x54005400u);
  if constexpr (kHighBits > 0) return insert_pair<kHighBits, 8>(tile.high, word, pair, half);
  return half;
}

/// Bytes 0 and 2, or (pair 1) 1 and 3, of a word of signed bytes whose sign bits are flipped.
__device__ __forceinline__ uint32_t byte_halves(uint32_t turned, int pair) {
  return __byte_perm(turned, 0x64646464u, pair == 0 ? 0x4240 : 0x4341);
}

/// The A operand of the sixteen columns i (0 ... 15) of a tile, with half_bias() in each number. Lanes have its
/// columns as in tile_operand(), for fp8 as in half_operand().
template <DType type>
__device__ __forceinline__ void tile_halves(const TileRegisters<type>& tile, int i, uint32_t (&a)[4]) {
  if constexpr (type == DType::fp8) {
    half_operand(tile, i, a);
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int upper_row = j % 2;
      const int pair = j / 2;
      if constexpr (type == DType::q8_0) {
        a[j] = byte_halves(word_of(tile.quants[i / 2], 2 * upper_row + i % 2) ^ 0x80808080u, pair);
      } else if constexpr (type == DType::mxfp4) {
        a[j] = e2m1_halves(word_of(tile.quants[i / 4], i / 2 % 2 * 2 + upper_row), 2 * (i % 2) + pair);
      } else {
        a[j] = half_pair(tile, i / 2 * 2 + upper_row, 2 * (i % 2) + pair);
      }
    }
  }
}

}  // namespace minfer::cuda
