#pragma once

#include <bit>
#include <cstdint>

/// Numbers of 8 bits, and how weights are quantised to them: sign, four bits of exponent (bias 7), three of mantissa, largest 448 and
/// no infinity (e4m3 of Micikevicius et al. 2022, "FP8 Formats for Deep Learning"). Functions without a loop run on any processor; a
/// device's own instructions give the same bits.
namespace minfer {

inline constexpr float kLargestE4m3 = 448.0f;

/// Exact. 0x7f and 0xff, the format's NaN, are 480 and -480 here: no weight is quantised to them.
constexpr float e4m3_to_f32(uint8_t bits) {
  // Sign, exponent and mantissa at f32's places make the number times 2^-120, also for subnormals.
  return std::bit_cast<float>((bits & 0x80u) << 24 | (bits & 0x7fu) << 20) * 0x1p120f;
}

/// Rounds to nearest even; a number beyond 448 becomes 448. Not for NaN.
inline uint8_t f32_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  uint32_t code = 0;
  if (magnitude <
      0x3c800000u) {  // below 2^-6: adding 2^14 leaves the rounded multiple of 2^-9 in the low bits
    code = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0x1p14f) & 0xffu;
  } else {
    const uint32_t rounded = (magnitude + 0x7ffffu + (magnitude >> 20 & 1u)) >> 20;
    code = rounded < (120u << 3) + 0x7eu ? rounded - (120u << 3) : 0x7eu;
  }
  return static_cast<uint8_t>((bits >> 24 & 0x80u) | code);
}

/// The scale of a row of weights, as bf16, from the bits of its largest magnitude in f32: the scale that makes this magnitude 448,
/// rounded up, so that no weight is beyond it. 0 for a row of zeros. NaN if the row has an infinity or a NaN: then the whole row
/// becomes NaN, as its products with the original weights would be.
constexpr uint16_t fp8_scale(uint32_t largest) {
  if (largest >= 0x7f800000u) return 0x7fc0;
  return static_cast<uint16_t>(
      (std::bit_cast<uint32_t>(std::bit_cast<float>(largest) / kLargestE4m3) + 0xffffu) >> 16);
}

/// True if numbers have a code under this scale; else their codes are zeros.
constexpr bool has_fp8_codes(uint16_t scale) {
  return scale > 0 && scale < 0x7f80;
}

}  // namespace minfer
