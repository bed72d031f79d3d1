#pragma once

#include <cstdint>

/// The block formats of GGUF, byte for byte as in a file (ggml's ggml-common.h is the specification). All
/// numbers are little-endian. A block has no padding, and in a mapped file it is aligned to 2 bytes at most,
/// so 32-bit fields are byte arrays. `d`, `m` and `dmin` are IEEE half precision. The comment before each
/// struct gives element k of its block. The last format is our own.
namespace minfer {

inline constexpr int kSmallBlock = 32;   ///< elements of q4_0 ... q8_0, iq4_nl and mxfp4
inline constexpr int kSuperBlock = 256;  ///< elements of the k-quants, iq4_xs and all formats after mxfp4
inline constexpr int kFp8Block = 128;

/// d * (q - 8); q of element k < 16: low nibble of qs[k], of k >= 16: high nibble of qs[k - 16].
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};

/// d * q + m; nibbles as in q4_0.
struct BlockQ4_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qs[16];
};

/// d * (q - 16); low four bits as in q4_0, the fifth is bit k of qh.
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};

/// d * q + m; q as in q5_0.
struct BlockQ5_1 {
  uint16_t d;
  uint16_t m;
  uint8_t qh[4];
  uint8_t qs[16];
};

/// d * qs[k].
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};

/// d * (s & 15) * q - dmin * (s >> 4) with s = scales[k / 16]. Two bits an element: of the 128 elements of
/// half h, element k has bits 2 (k / 32) ... of qs[32 h + k % 32].
struct BlockQ2K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;
  uint16_t dmin;
};

/// d * (s - 32) * (q - 4): the low two bits of q as in q2_k, the third is bit k / 32 of hmask[k % 32]. s is
/// the 6-bit scale j = k / 16: its low four bits are a nibble of scales[j % 8] (high if j >= 8), its upper
/// two bits 2 (j / 4) ... of scales[8 + j % 4].
struct BlockQ3K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;
};

/// d * s * q - dmin * m with the 6-bit scale s and minimum m of sub-block j = k / 32. For j < 4 these are the
/// low six bits of scales[j] and scales[j + 4]; for j >= 4 the low four bits are the nibbles of scales[j + 4]
/// (s low, m high) and the upper two the top bits of scales[j - 4] and scales[j].
/// q: nibbles of qs[32 (k / 64) + k % 32], low for even j.
struct BlockQ4K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qs[128];
};

/// As q4_k with a fifth bit: bit k / 32 of qh[k % 32].
struct BlockQ5K {
  uint16_t d;
  uint16_t dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};

/// d * scales[k / 16] * (q - 32). In half h of 128 elements with i = k % 128: the low four bits are nibbles
/// of ql[64 h + i % 64] (high if i >= 64), the upper two are bits 2 (i / 32) ... of qh[32 h + i % 32].
struct BlockQ6K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};

/// d * kIq4Values[q]; nibbles as in q4_0.
struct BlockIq4Nl {
  uint16_t d;
  uint8_t qs[16];
};

/// d * (s - 32) * kIq4Values[q] with the 6-bit scale s of sub-block j = k / 32: low four bits a nibble of
/// scales_l[j / 2] (high for odd j), upper two bits 2 j ... of scales_h. q: nibbles as in q4_0 within the 16
/// bytes of each sub-block.
struct BlockIq4Xs {
  uint16_t d;
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};

/// 2^(e - 127) * v, NaN if e is 255; nibbles as in q4_0. v is an e2m1 number: the low three bits select 0, 0.5, 1, 1.5, 2, 3, 4 or
/// 6, and the fourth is the sign (Open Compute Project, "OCP Microscaling Formats (MX) Specification" 1.0, 2023).
struct BlockMxfp4 {
  uint8_t e;
  uint8_t qs[16];
};

/// d * (t - 1) with a digit t of 0, 1 or 2. A byte b holds five digits as a fraction of 256: digit n is the integer part of 3 (3^n
/// b % 256) / 256. k < 160: digit k / 32 of qs[k % 32]; k < 240: digit (k - 160) / 16 of qs[32 + k % 16]; else digit (k - 240) / 4
/// of qh[k % 4].
struct BlockTq1_0 {
  uint8_t qs[48];
  uint8_t qh[4];
  uint16_t d;
};

/// d * (q - 1); q as in q2_k.
struct BlockTq2_0 {
  uint8_t qs[64];
  uint16_t d;
};

// The iq formats below have an index into a grid (quant_grids.h) for eight or four elements, and a sign bit for each element. If
// only seven bits are stored for eight signs, the eighth is set if the number of ones in them is odd (all_signs()).

/// d / 8 * (2 s + 1) * +-grid. Group k / 32 has eight bytes: four indices, then a word with 7 bits of signs for each of them and s above.
struct BlockIq2Xxs {
  uint16_t d;
  uint8_t qs[64];
};

/// d / 8 * (2 s + 1) * +-grid; s: nibble k / 16. qs[k / 8]: an index of 9 bits, 7 bits of signs above.
struct BlockIq2Xs {
  uint16_t d;
  uint16_t qs[32];
  uint8_t scales[8];
};

/// d / 8 * (2 s + 1) * +-grid; s: nibble k / 16. Index of k / 8: qs[k / 8], two bits above it 2 (k / 8 % 4) ... of qh[k / 32].
struct BlockIq2S {
  uint16_t d;
  uint8_t qs[32];
  uint8_t signs[32];
  uint8_t qh[8];
  uint8_t scales[8];
};

/// d / 4 * (2 s + 1) * +-grid; an index of four elements: qs[k / 4]. Word k / 32 of scales_and_signs: as in iq2_xxs.
struct BlockIq3Xxs {
  uint16_t d;
  uint8_t qs[64];
  uint8_t scales_and_signs[32];
};

/// d * (2 s + 1) * +-grid; s: nibble k / 32. Index of k / 4: qs[k / 4], one bit above it k / 4 % 8 of qh[k / 32].
struct BlockIq3S {
  uint16_t d;
  uint8_t qs[64];
  uint8_t qh[8];
  uint8_t signs[32];
  uint8_t scales[4];
};

/// d * (2 s + 1) * (grid + 1/8), with -1/8 if the top bit of qh[k / 32] is set. Index of k / 8: qs[k / 8], three bits above it
/// 3 (k / 8 % 4) ... of qh[k / 32]; s: bits 12 to 14 of that.
struct BlockIq1S {
  uint16_t d;
  uint8_t qs[32];
  uint16_t qh[8];
};

/// d * (2 s + 1) * (grid +- 1/8). Nibble k / 8 of qh: three bits above qs[k / 8], then whether the eighth is subtracted. Word k / 64 of
/// scales: s of k / 16 in bits 3 (k / 16 % 4) ..., and above four bits of d, the lowest first (half_of()).
struct BlockIq1M {
  uint8_t qs[32];
  uint8_t qh[16];
  uint16_t scales[4];
};

/// d * qs[k] with a bf16 d and e4m3 numbers (kernels/fp8.h).
struct BlockFp8 {
  uint16_t d;
  uint8_t qs[kFp8Block];
};

/// The bits of 2^(e - 127) in f32, which is subnormal for e = 0 and NaN for e = 255.
[[gnu::always_inline]] constexpr uint32_t e8m0_bits(uint32_t e) {
  return e == 0 ? 0x00400000u : e == 255 ? 0x7fc00000u : e << 23;
}

/// Four times eight sign bits, from the four times seven in the lower bits of a word.
[[gnu::always_inline]] constexpr uint32_t all_signs(uint32_t word) {
  const uint32_t sevens =
      (word & 0x7fu) | (word << 1 & 0x7f00u) | (word << 2 & 0x7f0000u) | (word << 3 & 0x7f000000u);
  uint32_t odd = sevens ^ sevens >> 4;
  odd ^= odd >> 2;
  odd ^= odd >> 1;
  return sevens | (odd & 0x01010101u) << 7;
}

/// The field d of an iq1_m block.
[[gnu::always_inline]] constexpr uint16_t half_of(const BlockIq1M& block) {
  const uint16_t* words = block.scales;
  return static_cast<uint16_t>(words[0] >> 12 | words[1] >> 12 << 4 | words[2] >> 12 << 8 |
                               words[3] >> 12 << 12);
}

/// The non-uniform grid of iq4_nl and iq4_xs.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 &&
              sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110 &&
              sizeof(BlockQ4K) == 144);
static_assert(sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210 && sizeof(BlockIq4Nl) == 18 &&
              sizeof(BlockIq4Xs) == 136 && sizeof(BlockMxfp4) == 17 && sizeof(BlockFp8) == 130);
static_assert(sizeof(BlockTq1_0) == 54 && sizeof(BlockTq2_0) == 66 && sizeof(BlockIq2Xxs) == 66 &&
              sizeof(BlockIq2Xs) == 74 && sizeof(BlockIq2S) == 82 && sizeof(BlockIq3Xxs) == 98 &&
              sizeof(BlockIq3S) == 110 && sizeof(BlockIq1S) == 50 && sizeof(BlockIq1M) == 56);

}  // namespace minfer
