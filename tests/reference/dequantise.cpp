#include "tests/reference/dequantise.h"

#include <bit>
#include <cmath>

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

/// Element k of 32 whose first half are the low nibbles and second half the high ones.
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
    case DType::fp8:
      return bf16(b) * e4m3(b[2 + k]);
    case DType::f8_e4m3:
      break;  // never in a file
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
