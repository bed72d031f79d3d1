#include "tests/reference/dequantise.h"

#include <array>
#include <bit>
#include <cmath>

#include "kernels/quant_grids.h"

namespace minfer::reference {
namespace {

uint16_t u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}
uint32_t u32(const uint8_t* p) {
  return u16(p) | static_cast<uint32_t>(u16(p + 2)) << 16;
}
int signed_byte(uint8_t byte) {
  return byte < 128 ? byte : byte - 256;
}

/// sign (-1)^s, exponent e, mantissa m: 2^(e-15) (1 + m/1024), or 2^-14 (m/1024) for e = 0.
double half(const uint8_t* p) {
  const uint16_t bits = u16(p);
  const int exponent = bits >> 10 & 31;
  const double mantissa = (bits & 1023) / 1024.0;
  const double sign = bits >> 15 ? -1.0 : 1.0;
  if (exponent == 31) return mantissa == 0.0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(mantissa, -14) : std::ldexp(1.0 + mantissa, exponent - 15));
}

double bf16(const uint8_t* p) {
  return std::bit_cast<float>(static_cast<uint32_t>(u16(p)) << 16);
}

int nibble(uint8_t byte, bool high) {
  return high ? byte >> 4 : byte & 15;
}
int bit(uint32_t word, int index) {
  return static_cast<int>(word >> index & 1u);
}
int two_bits(uint8_t byte, int index) {
  return byte >> (2 * index) & 3;
}

/// Element k of 32: the first half are the low nibbles, the second half the high ones.
int split_nibble(const uint8_t* qs, int k) {
  return nibble(qs[k % 16], k >= 16);
}

constexpr int kIq4Grid[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

double q2_k(const uint8_t* b, int k) {
  const uint8_t scale = b[k / 16];
  const int q = two_bits(b[16 + 32 * (k / 128) + k % 32], k % 128 / 32);
  return half(b + 80) * (scale & 15) * q - half(b + 82) * (scale >> 4);
}

double q3_k(const uint8_t* b, int k) {
  const uint8_t* scales = b + 96;
  const int j = k / 16;
  const int scale = nibble(scales[j % 8], j >= 8) + 16 * two_bits(scales[8 + j % 4], j / 4);
  const int q = two_bits(b[32 + 32 * (k / 128) + k % 32], k % 128 / 32) + 4 * bit(b[k % 32], k / 32);
  return half(b + 108) * (scale - 32) * (q - 4);
}

/// The 6-bit scale and minimum of sub-block j of q4_k and q5_k.
struct ScaleMin {
  int scale;
  int min;
};
ScaleMin scale_min(const uint8_t* scales, int j) {
  if (j < 4) return {scales[j] % 64, scales[j + 4] % 64};
  return {scales[j + 4] % 16 + 16 * (scales[j - 4] / 64), scales[j + 4] / 16 + 16 * (scales[j] / 64)};
}

double q4_k(const uint8_t* b, int k) {
  const ScaleMin s = scale_min(b + 4, k / 32);
  const int q = nibble(b[16 + 32 * (k / 64) + k % 32], k / 32 % 2 == 1);
  return half(b) * s.scale * q - half(b + 2) * s.min;
}

double q5_k(const uint8_t* b, int k) {
  const ScaleMin s = scale_min(b + 4, k / 32);
  const int q = nibble(b[48 + 32 * (k / 64) + k % 32], k / 32 % 2 == 1) + 16 * bit(b[16 + k % 32], k / 32);
  return half(b) * s.scale * q - half(b + 2) * s.min;
}

double q6_k(const uint8_t* b, int k) {
  const int h = k / 128;
  const int i = k % 128;
  const int q = nibble(b[64 * h + i % 64], i >= 64) + 16 * two_bits(b[128 + 32 * h + i % 32], i / 32);
  return half(b + 208) * signed_byte(b[192 + k / 16]) * (q - 32);
}

double mxfp4(const uint8_t* b, int k) {
  constexpr double kNumbers[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  const int q = split_nibble(b + 1, k);
  return b[0] == 255 ? NAN : std::ldexp(q < 8 ? kNumbers[q] : -kNumbers[q - 8], b[0] - 127);
}

double iq4_xs(const uint8_t* b, int k) {
  const int j = k / 32;
  const int scale = nibble(b[4 + j / 2], j % 2 == 1) + 16 * (u16(b + 2) >> (2 * j) & 3);
  return half(b) * (scale - 32) * kIq4Grid[split_nibble(b + 8 + 16 * j, k % 32)];
}

/// Digit n of the five in a byte of tq1_0, that is of b / 256 in base 3.
int ternary_digit(uint8_t b, int n) {
  double fraction = b / 256.0;
  for (int i = 0; i < n; ++i)
    fraction = fraction * 3.0 - std::floor(fraction * 3.0);
  return static_cast<int>(fraction * 3.0);
}

double tq1_0(const uint8_t* b, int k) {
  const uint8_t* byte = k < 160 ? b + k % 32 : k < 240 ? b + 32 + k % 16 : b + 48 + k % 4;
  const int digit = k < 160 ? k / 32 : k < 240 ? (k - 160) / 16 : (k - 240) / 4;
  return half(b + 52) * (ternary_digit(*byte, digit) - 1);
}

double tq2_0(const uint8_t* b, int k) {
  return half(b + 64) * (two_bits(b[32 * (k / 128) + k % 32], k % 128 / 32) - 1);
}

/// Digit i of entry `index`.
template <size_t size>
int grid_digit(const std::array<uint16_t, size>& grid, int index, int i, int bits) {
  return grid[static_cast<size_t>(index)] >> (bits * i) & ((1 << bits) - 1);
}

/// Sign i of eight signs that are stored in seven bits.
double sign_of_seven(uint32_t seven, int i) {
  const bool negative = i < 7 ? bit(seven, i) : std::popcount(seven) % 2 != 0;
  return negative ? -1.0 : 1.0;
}
double sign_of(const uint8_t* signs, int k) {
  return bit(signs[k / 8], k % 8) ? -1.0 : 1.0;
}

double iq2_xxs(const uint8_t* b, int k) {
  const uint8_t* group = b + 2 + 8 * (k / 32);
  const uint32_t word = u32(group + 4);
  const int eighth = k % 32 / 8;
  return half(b) * (0.5 + (word >> 28)) / 4.0 *
         kIq2Magnitudes[grid_digit(kIq2XxsGrid, group[eighth], k % 8, 2)] *
         sign_of_seven(word >> (7 * eighth) & 127, k % 8);
}

double iq2_xs(const uint8_t* b, int k) {
  const int q = u16(b + 2 + 2 * (k / 8));
  return half(b) * (0.5 + nibble(b[66 + k / 32], k / 16 % 2 == 1)) / 4.0 *
         kIq2Magnitudes[grid_digit(kIq2XsGrid, q % 512, k % 8, 2)] * sign_of_seven(q / 512, k % 8);
}

double iq2_s(const uint8_t* b, int k) {
  const int index = b[2 + k / 8] + 256 * two_bits(b[66 + k / 32], k / 8 % 4);
  return half(b) * (0.5 + nibble(b[74 + k / 32], k / 16 % 2 == 1)) / 4.0 *
         kIq2Magnitudes[grid_digit(kIq2SGrid, index, k % 8, 2)] * sign_of(b + 34, k);
}

double iq3_xxs(const uint8_t* b, int k) {
  const uint32_t word = u32(b + 66 + 4 * (k / 32));
  return half(b) * (0.5 + (word >> 28)) / 2.0 *
         kIq3XxsMagnitudes[grid_digit(kIq3XxsGrid, b[2 + k / 4], k % 4, 4)] *
         sign_of_seven(word >> (7 * (k % 32 / 8)) & 127, k % 8);
}

double iq3_s(const uint8_t* b, int k) {
  const int index = b[2 + k / 4] + 256 * bit(b[66 + k / 32], k / 4 % 8);
  return half(b) * (1 + 2 * nibble(b[106 + k / 64], k / 32 % 2 == 1)) *
         kIq3SMagnitudes[grid_digit(kIq3SGrid, index, k % 4, 4)] * sign_of(b + 74, k);
}

double iq1_s(const uint8_t* b, int k) {
  const int high = u16(b + 34 + 2 * (k / 32));
  const int index = b[2 + k / 8] + 256 * (high >> (3 * (k / 8 % 4)) & 7);
  const double eighth = bit(static_cast<uint32_t>(high), 15) ? -0.125 : 0.125;
  return half(b) * (2 * (high >> 12 & 7) + 1) * (grid_digit(kIq1Grid, index, k % 8, 2) - 1 + eighth);
}

double iq1_m(const uint8_t* b, int k) {
  uint8_t d[2] = {};
  for (int i = 0; i < 4; ++i)
    d[i / 2] |= static_cast<uint8_t>(b[49 + 2 * i] / 16 << (4 * (i % 2)));
  const int high = nibble(b[32 + k / 16], k / 8 % 2 == 1);
  const int index = b[k / 8] + 256 * (high % 8);
  const int s = u16(b + 48 + 2 * (k / 64)) >> (3 * (k / 16 % 4)) & 7;
  return half(d) * (2 * s + 1) * (grid_digit(kIq1Grid, index, k % 8, 2) - 1 + (high < 8 ? 0.125 : -0.125));
}

}  // namespace

double e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15;
  const double mantissa = (bits & 7) / 8.0;
  if ((bits & 127) == 127) return NAN;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -6) : std::ldexp(1.0 + mantissa, exponent - 7);
  return bits >> 7 ? -magnitude : magnitude;
}

double element(DType dtype, const uint8_t* b, int k) {
  switch (dtype) {
    case DType::f32:
      return std::bit_cast<float>(u32(b));
    case DType::f16:
      return half(b);
    case DType::bf16:
      return bf16(b);
    case DType::q4_0:
      return half(b) * (split_nibble(b + 2, k) - 8);
    case DType::q4_1:
      return half(b) * split_nibble(b + 4, k) + half(b + 2);
    case DType::q5_0:
      return half(b) * (split_nibble(b + 6, k) + 16 * bit(u32(b + 2), k) - 16);
    case DType::q5_1:
      return half(b) * (split_nibble(b + 8, k) + 16 * bit(u32(b + 4), k)) + half(b + 2);
    case DType::q8_0:
      return half(b) * signed_byte(b[2 + k]);
    case DType::q2_k:
      return q2_k(b, k);
    case DType::q3_k:
      return q3_k(b, k);
    case DType::q4_k:
      return q4_k(b, k);
    case DType::q5_k:
      return q5_k(b, k);
    case DType::q6_k:
      return q6_k(b, k);
    case DType::iq4_nl:
      return half(b) * kIq4Grid[split_nibble(b + 2, k)];
    case DType::iq4_xs:
      return iq4_xs(b, k);
    case DType::mxfp4:
      return mxfp4(b, k);
    case DType::tq1_0:
      return tq1_0(b, k);
    case DType::tq2_0:
      return tq2_0(b, k);
    case DType::iq2_xxs:
      return iq2_xxs(b, k);
    case DType::iq2_xs:
      return iq2_xs(b, k);
    case DType::iq2_s:
      return iq2_s(b, k);
    case DType::iq3_xxs:
      return iq3_xxs(b, k);
    case DType::iq3_s:
      return iq3_s(b, k);
    case DType::iq1_s:
      return iq1_s(b, k);
    case DType::iq1_m:
      return iq1_m(b, k);
    case DType::fp8:
      return bf16(b) * e4m3(b[2 + k]);
    case DType::lut4:
    case DType::f8_e4m3:
    case DType::i64:
      break;  // never a weight's in a file
  }
  return NAN;
}

Matrix dequantise(const void* data, DType dtype, int64_t rows, int64_t cols) {
  const int64_t block = traits(dtype).block_elements;
  const auto row_size = static_cast<int64_t>(row_bytes(dtype, cols));
  const auto* bytes = static_cast<const uint8_t*>(data);
  Matrix matrix(rows, cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t row = i / cols, col = i % cols;
    const uint8_t* at = bytes + row * row_size + col / block * traits(dtype).block_bytes;
    matrix.data[static_cast<size_t>(i)] = element(dtype, at, static_cast<int>(col % block));
  }
  return matrix;
}

}  // namespace minfer::reference
