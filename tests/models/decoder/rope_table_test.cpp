#include <cmath>

#include <gtest/gtest.h>

#include "models/decoder/config/config.h"

namespace minfer {
namespace {

/// Checks a table against cos and sin of position * frequency(pair), times `magnitude`.
template <class Frequency>
void expect_table(const std::vector<float>& table, int32_t rotary_size, int32_t positions, double magnitude,
                  Frequency frequency) {
  const int32_t pairs = rotary_size / 2;
  ASSERT_EQ(table.size(), static_cast<size_t>(positions * pairs * 2));
  for (int32_t position = 0; position < positions; ++position) {
    for (int32_t pair = 0; pair < pairs; ++pair) {
      const size_t at = static_cast<size_t>((position * pairs + pair) * 2);
      const double angle = position * frequency(pair);
      ASSERT_NEAR(table[at], magnitude * std::cos(angle), 2e-7) << position << " " << pair;
      ASSERT_NEAR(table[at + 1], magnitude * std::sin(angle), 2e-7) << position << " " << pair;
    }
  }
}

TEST(RopeTable, Plain) {
  expect_table(make_rope_table({.base = 10000.0f}, 64, {}, 300), 64, 300, 1.0,
               [](int32_t pair) { return std::pow(10000.0, -2.0 * pair / 64); });
}

TEST(RopeTable, LinearScalingDividesEveryFrequency) {
  const RopeConfig rope{.base = 10000.0f, .scaling = {.kind = RopeScaling::Kind::linear, .factor = 4.0f}};
  expect_table(make_rope_table(rope, 32, {}, 100), 32, 100, 1.0,
               [](int32_t pair) { return std::pow(10000.0, -2.0 * pair / 32) / 4.0; });
}

TEST(RopeTable, FrequencyFactorsDivideOneByOne) {
  const std::vector<float> factors{1.0f, 1.0f, 2.5f, 8.0f};
  expect_table(make_rope_table({.base = 500000.0f}, 8, factors, 50), 8, 50, 1.0, [&](int32_t pair) {
    return std::pow(500000.0, -2.0 * pair / 8) / static_cast<double>(factors[static_cast<size_t>(pair)]);
  });
}

TEST(RopeTable, LongRopeHasItsFactorsAndItsMagnitude) {
  const RopeConfig rope{.base = 10000.0f,
                        .scaling = {.kind = RopeScaling::Kind::long_rope, .magnitude = 1.25f}};
  const std::vector<float> factors{1.0f, 1.5f, 2.5f, 8.0f};
  expect_table(make_rope_table(rope, 8, factors, 50), 8, 50, 1.25, [&](int32_t pair) {
    return std::pow(10000.0, -2.0 * pair / 8) / static_cast<double>(factors[static_cast<size_t>(pair)]);
  });
}

TEST(RopeTable, YarnKeepsFastPairsAndStretchesSlowOnes) {
  const RopeConfig rope{
      .base = 10000.0f,
      .scaling = {
          .kind = RopeScaling::Kind::yarn, .factor = 8.0f, .original_context = 64, .magnitude = 1.25f}};
  const std::vector<float> table = make_rope_table(rope, 64, {}, 2);
  const auto angle_of_pair = [&](size_t pair) {
    return std::atan2(table[64 + 2 * pair + 1], table[64 + 2 * pair]);
  };
  EXPECT_NEAR(std::hypot(table[0], table[1]), 1.25, 1e-6);
  EXPECT_NEAR(angle_of_pair(0), 1.0,
              1e-6);  // the fastest pair is unchanged
  const double slowest = std::pow(10000.0, -62.0 / 64);
  EXPECT_NEAR(angle_of_pair(31), slowest / 8.0, 1e-9);  // far less than one turn: interpolated fully
}

}  // namespace
}  // namespace minfer
