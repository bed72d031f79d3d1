#pragma once

#include <cuda_fp16.h>

#include "kernels/cuda/weights/quant_tile.cuh"
#include "kernels/quant_types.h"

/// Reads the block formats of GGUF element by element, as quant_types.h describes them. Weights that are put
/// into their device layout at load are read this way.
///
/// code(block, k): the bits of element k as an integer: unsigned, with its type's offset, the index into a
/// table, or the bits of a number; for q8_0 the signed number itself. For experts of rare types, which are
/// converted: number(block, k) is the factor of d times a scale, for types that become q8_0 or q6_k;
/// value(block, k) is element k itself, for types that become bf16.
namespace minfer::cuda {

template <class Block>
inline constexpr int kBlockCols = sizeof(Block) < 48 ? kSmallBlock : kSuperBlock;

__host__ __device__ inline float half_bits(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__host__ __device__ inline int nibble(uint8_t byte, bool high) {
  return high ? byte >> 4 : byte & 15;
}
/// Element k of 32: the first half are low nibbles, the second half high nibbles.
__host__ __device__ inline int split_nibble(const uint8_t* qs, int k) {
  return nibble(qs[k % 16], k >= 16);
}
__host__ __device__ inline int fifth_bit(const uint8_t* qh, int k) {
  return (qh[k / 8] >> (k % 8) & 1) << 4;
}
/// The two bits of an element of q2_k and q3_k.
__host__ __device__ inline int two_bits(const uint8_t* qs, int k) {
  return qs[32 * (k / 128) + k % 32] >> (2 * (k % 128 / 32)) & 3;
}

__host__ __device__ inline int code(const BlockQ4_0& b, int k) {
  return split_nibble(b.qs, k);
}
__host__ __device__ inline int code(const BlockQ4_1& b, int k) {
  return split_nibble(b.qs, k);
}
__host__ __device__ inline int code(const BlockMxfp4& b, int k) {
  return split_nibble(b.qs, k);
}
__host__ __device__ inline int code(const BlockIq4Nl& b, int k) {
  return split_nibble(b.qs, k);
}
__host__ __device__ inline int code(const BlockIq4Xs& b, int k) {
  return split_nibble(b.qs + 16 * (k / 32), k % 32);
}
__host__ __device__ inline int code(const BlockQ8_0& b, int k) {
  return b.qs[k];
}
__host__ __device__ inline int code(const BlockQ5_0& b, int k) {
  return split_nibble(b.qs, k) | fifth_bit(b.qh, k);
}
__host__ __device__ inline int code(const BlockQ5_1& b, int k) {
  return split_nibble(b.qs, k) | fifth_bit(b.qh, k);
}
__host__ __device__ inline int code(const BlockQ4K& b, int k) {
  return nibble(b.qs[32 * (k / 64) + k % 32], k / 32 % 2 != 0);
}
__host__ __device__ inline int code(const BlockQ5K& b, int k) {
  return nibble(b.qs[32 * (k / 64) + k % 32], k / 32 % 2 != 0) | (b.qh[k % 32] >> (k / 32) & 1) << 4;
}
__host__ __device__ inline int code(const BlockQ6K& b, int k) {
  const int i = k % 128;
  return nibble(b.ql[64 * (k / 128) + i % 64], i >= 64) |
         (b.qh[32 * (k / 128) + i % 32] >> (2 * (i / 32)) & 3) << 4;
}
__host__ __device__ inline int code(const BlockQ2K& b, int k) {
  return two_bits(b.qs, k);
}
__host__ __device__ inline int code(const BlockQ3K& b, int k) {
  return two_bits(b.qs, k) | (b.hmask[k % 32] >> (k / 32) & 1) << 2;
}

struct ScaleMin {
  int scale;
  int min;
};
/// The 6-bit scale and minimum of sub-block j of 32 elements of q4_k and q5_k.
__host__ __device__ inline ScaleMin scale_min(const uint8_t* scales, int j) {
  if (j < 4) return {scales[j] & 63, scales[j + 4] & 63};
  return {(scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4, (scales[j + 4] >> 4) | (scales[j] >> 6) << 4};
}
/// The 6-bit scale of sub-block j (16 elements of q3_k, 32 of iq4_xs), still with the offset of 32.
__host__ __device__ inline int six_bit_scale(const BlockQ3K& b, int j) {
  return nibble(b.scales[j % 8], j >= 8) | (b.scales[8 + j % 4] >> (2 * (j / 4)) & 3) << 4;
}
__host__ __device__ inline int six_bit_scale(const BlockIq4Xs& b, int j) {
  return nibble(b.scales_l[j / 2], j % 2 != 0) | (b.scales_h >> (2 * j) & 3) << 4;
}
/// The bits of d and dmin.
template <class Block>
__host__ __device__ inline uint16_t d_bits(const Block& b) {
  return b.d;
}
__host__ __device__ inline uint16_t dmin_bits(const BlockQ2K& b) {
  return b.dmin;
}
/// Scale and minimum of sub-block j of 16 elements of q2_k, in one byte.
__host__ __device__ inline int two_scales(const BlockQ2K& b, int j) {
  return b.scales[j];
}
/// The signed scale of sub-block j of 16 elements of q6_k, and of q3_k in the form of q6_k.
__host__ __device__ inline int scale_byte(const BlockQ6K& b, int j) {
  return b.scales[j];
}
__host__ __device__ inline int scale_byte(const BlockQ3K& b, int j) {
  return six_bit_scale(b, j) - 32;
}

__host__ __device__ inline int number(const BlockQ5_0& b, int k) {
  return code(b, k) - 16;
}
__host__ __device__ inline int number(const BlockIq4Nl& b, int k) {
  return iq4_value(code(b, k));
}
__host__ __device__ inline int number(const BlockQ3K& b, int k) {
  return code(b, k) - 4;
}

__device__ inline float value(const BlockQ4_1& b, int k) {
  return half_bits(b.d) * static_cast<float>(code(b, k)) + half_bits(b.m);
}
__device__ inline float value(const BlockQ5_1& b, int k) {
  return half_bits(b.d) * static_cast<float>(code(b, k)) + half_bits(b.m);
}
__device__ inline float value(const BlockQ2K& b, int k) {
  const uint8_t s = b.scales[k / 16];
  return half_bits(b.d) * static_cast<float>((s & 15) * code(b, k)) -
         half_bits(b.dmin) * static_cast<float>(s >> 4);
}
__device__ inline float value(const BlockIq4Xs& b, int k) {
  const int scale = six_bit_scale(b, k / 32) - 32;
  return half_bits(b.d) * static_cast<float>(scale * iq4_value(code(b, k)));
}

}  // namespace minfer::cuda
