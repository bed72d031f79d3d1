#pragma once

#include <cuda_fp16.h>

#include "kernels/quant_types.h"

/// Reads the block formats of GGUF element by element, as quant_types.h describes them: the way in of weights
/// that are put into their device layout at load.
///
/// code(block, k): element k as an integer before any scale: unsigned with the offset still in it for q4_0,
/// q6_k (and q3_k, widened to q6_k's offset of 32), q4_k and q5_k; the bits of the number for mxfp4; the signed number that d
/// multiplies for q8_0, q5_0 and iq4_nl. value(block, k): element k itself, for the types that become bf16.
namespace minfer::cuda {

__device__ inline float half_bits(uint16_t bits) {
  return __half2float(__ushort_as_half(bits));
}
__device__ inline int nibble(uint8_t byte, bool high) {
  return high ? byte >> 4 : byte & 15;
}
/// Element k of 32 whose first half are low nibbles and second half high ones.
__device__ inline int split_nibble(const uint8_t* qs, int k) {
  return nibble(qs[k % 16], k >= 16);
}
__device__ inline int fifth_bit(const uint8_t* qh, int k) {
  return (qh[k / 8] >> (k % 8) & 1) << 4;
}
__device__ inline int iq4_value(int q) {
  constexpr int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kValues[q];
}

__device__ inline int code(const BlockQ4_0& b, int k) {
  return split_nibble(b.qs, k);
}
__device__ inline int code(const BlockMxfp4& b, int k) {
  return split_nibble(b.qs, k);
}
__device__ inline int code(const BlockQ8_0& b, int k) {
  return b.qs[k];
}
__device__ inline int code(const BlockQ5_0& b, int k) {
  return (split_nibble(b.qs, k) | fifth_bit(b.qh, k)) - 16;
}
__device__ inline int code(const BlockIq4Nl& b, int k) {
  return iq4_value(split_nibble(b.qs, k));
}
__device__ inline int code(const BlockQ4K& b, int k) {
  return nibble(b.qs[32 * (k / 64) + k % 32], k / 32 % 2 != 0);
}
__device__ inline int code(const BlockQ5K& b, int k) {
  return nibble(b.qs[32 * (k / 64) + k % 32], k / 32 % 2 != 0) | (b.qh[k % 32] >> (k / 32) & 1) << 4;
}
__device__ inline int code(const BlockQ6K& b, int k) {
  const int i = k % 128;
  return nibble(b.ql[64 * (k / 128) + i % 64], i >= 64) |
         (b.qh[32 * (k / 128) + i % 32] >> (2 * (i / 32)) & 3) << 4;
}
__device__ inline int code(const BlockQ3K& b, int k) {
  const int q =
      (b.qs[32 * (k / 128) + k % 32] >> (2 * (k % 128 / 32)) & 3) | (b.hmask[k % 32] >> (k / 32) & 1) << 2;
  return q - 4 + 32;
}

struct ScaleMin {
  int scale;
  int min;
};
/// The 6-bit scale and minimum of sub-block j of 32 elements of q4_k and q5_k.
__device__ inline ScaleMin scale_min(const uint8_t* scales, int j) {
  if (j < 4) return {scales[j] & 63, scales[j + 4] & 63};
  return {(scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4, (scales[j + 4] >> 4) | (scales[j] >> 6) << 4};
}
/// The signed scale of sub-block j of 16 elements of q6_k and q3_k.
__device__ inline int sub_scale(const BlockQ6K& b, int j) {
  return b.scales[j];
}
__device__ inline int sub_scale(const BlockQ3K& b, int j) {
  return (nibble(b.scales[j % 8], j >= 8) | (b.scales[8 + j % 4] >> (2 * (j / 4)) & 3) << 4) - 32;
}

__device__ inline float value(const BlockQ4_1& b, int k) {
  return half_bits(b.d) * static_cast<float>(split_nibble(b.qs, k)) + half_bits(b.m);
}
__device__ inline float value(const BlockQ5_1& b, int k) {
  return half_bits(b.d) * static_cast<float>(split_nibble(b.qs, k) | fifth_bit(b.qh, k)) + half_bits(b.m);
}
__device__ inline float value(const BlockQ2K& b, int k) {
  const uint8_t s = b.scales[k / 16];
  const int q = b.qs[32 * (k / 128) + k % 32] >> (2 * (k % 128 / 32)) & 3;
  return half_bits(b.d) * static_cast<float>((s & 15) * q) - half_bits(b.dmin) * static_cast<float>(s >> 4);
}
__device__ inline float value(const BlockIq4Xs& b, int k) {
  const int j = k / 32;
  const int scale = (nibble(b.scales_l[j / 2], j % 2 != 0) | (b.scales_h >> (2 * j) & 3) << 4) - 32;
  return half_bits(b.d) * static_cast<float>(scale * iq4_value(split_nibble(b.qs + 16 * j, k % 32)));
}

}  // namespace minfer::cuda
