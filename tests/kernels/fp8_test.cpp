// Numbers of 8 bits: every code, and how numbers and rows are converted to codes.
#include "kernels/fp8.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "kernels/half.h"
#include "tests/reference/dequantise.h"
#include "tests/reference/quantise.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}

float scale_of(float largest) {
  return bf16_to_f32(fp8_scale(bits_of(largest)));
}

TEST(Fp8, EveryCodeHasItsNumberAndComesBack) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    if ((code & 127) == 127) {  // NaN of the format
      EXPECT_EQ(std::abs(e4m3_to_f32(bits)), 480.0f);
      continue;
    }
    EXPECT_EQ(e4m3_to_f32(bits), reference::e4m3(bits)) << code;
    EXPECT_EQ(std::signbit(e4m3_to_f32(bits)), code > 127) << code;
    EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(bits)), bits) << code;
  }
}

TEST(Fp8, NumbersBetweenCodesGoToTheNearestAndTiesToTheEven) {
  for (uint8_t code = 0; code < 126; ++code) {
    const float low = e4m3_to_f32(code), high = e4m3_to_f32(code + 1);
    const float middle = (low + high) / 2;  // exact
    const uint8_t even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(f32_to_e4m3(middle), even) << middle;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, 0.0f)), code) << middle;
    EXPECT_EQ(f32_to_e4m3(std::nextafter(middle, 1e9f)), code + 1) << middle;
    EXPECT_EQ(f32_to_e4m3(-middle), even | 0x80) << middle;
  }
}

TEST(Fp8, WhatIsTooLargeOrTooSmallGoesToTheEnds) {
  for (const float large : {448.0f, 449.0f, 464.0f, 480.0f, 1e10f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(f32_to_e4m3(large), 0x7e) << large;
    EXPECT_EQ(f32_to_e4m3(-large), 0xfe) << large;
  }
  for (const float small : {0.0f, 1e-40f, 1e-10f, 0x1p-10f}) {
    EXPECT_EQ(f32_to_e4m3(small), 0x00) << small;
    EXPECT_EQ(f32_to_e4m3(-small), 0x80) << small;
  }
  EXPECT_EQ(f32_to_e4m3(0x1.002p-10f), 0x01);
}

TEST(Fp8, AnyNumberRoundsAsTheDefinitionSays) {
  for (const float value : test::normal_values(20000, 1, 30.0f)) {
    EXPECT_EQ(e4m3_to_f32(f32_to_e4m3(value)), reference::nearest_e4m3(value)) << value;
    const float small = value * 0x1p-12f;
    EXPECT_EQ(e4m3_to_f32(f32_to_e4m3(small)), reference::nearest_e4m3(small)) << small;
  }
}

TEST(Fp8, TheScaleIsTheSmallestThatLeavesNothingBeyond448) {
  for (const float value : test::normal_values(2000, 2)) {
    const float largest = std::abs(value);
    const float scale = scale_of(largest);
    EXPECT_LE(largest / scale, 448.0f) << largest;
    const float below = bf16_to_f32(static_cast<uint16_t>(fp8_scale(bits_of(largest)) - 1));
    EXPECT_GT(largest / below, 448.0f) << largest;
  }
  EXPECT_EQ(scale_of(448.0f), 1.0f);
  EXPECT_EQ(scale_of(449.0f), 1.0078125f);
  EXPECT_EQ(scale_of(0.0f), 0.0f);
  EXPECT_GT(scale_of(std::numeric_limits<float>::max()), 7e35f);
  EXPECT_GT(scale_of(1e-40f), 0.0f);
  EXPECT_TRUE(std::isnan(scale_of(std::numeric_limits<float>::infinity())));
  EXPECT_TRUE(std::isnan(scale_of(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(has_fp8_codes(fp8_scale(bits_of(1.0f))));
  EXPECT_FALSE(has_fp8_codes(fp8_scale(0)));
  EXPECT_FALSE(has_fp8_codes(fp8_scale(0x7f800000u)));
}

}  // namespace
}  // namespace minfer
