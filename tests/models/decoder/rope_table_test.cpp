#include <cmath>

#include <gtest/gtest.h>

#include "models/decoder/config.h"

namespace minfer {
namespace {

ModelConfig config_of(int32_t rotary_size, float base) {
  ModelConfig config;
  config.head_size = rotary_size;
  config.rotary_size = rotary_size;
  config.rope_base = base;
  return config;
}

/// Checks a table against cos and sin of position * frequency(pair), times `magnitude`.
template <class Frequency>
void expect_table(const std::vector<float>& table, const ModelConfig& config, int32_t positions,
                  double magnitude, Frequency frequency) {
  const int32_t pairs = config.rotary_size / 2;
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
  const ModelConfig config = config_of(64, 10000.0f);
  expect_table(make_rope_table(config, {}, 300), config, 300, 1.0,
               [](int32_t pair) { return std::pow(10000.0, -2.0 * pair / 64); });
}

TEST(RopeTable, LinearScalingDividesEveryFrequency) {
  ModelConfig config = config_of(32, 10000.0f);
  config.rope_scaling = {.kind = RopeScaling::Kind::linear, .factor = 4.0f};
  expect_table(make_rope_table(config, {}, 100), config, 100, 1.0,
               [](int32_t pair) { return std::pow(10000.0, -2.0 * pair / 32) / 4.0; });
}

TEST(RopeTable, FrequencyFactorsDivideOneByOne) {
  const ModelConfig config = config_of(8, 500000.0f);
  const std::vector<float> factors{1.0f, 1.0f, 2.5f, 8.0f};
  expect_table(make_rope_table(config, factors, 50), config, 50, 1.0, [&](int32_t pair) {
    return std::pow(500000.0, -2.0 * pair / 8) / static_cast<double>(factors[static_cast<size_t>(pair)]);
  });
}

TEST(RopeTable, YarnKeepsFastPairsAndStretchesSlowOnes) {
  ModelConfig config = config_of(64, 10000.0f);
  config.rope_scaling = {
      .kind = RopeScaling::Kind::yarn, .factor = 8.0f, .original_context = 64, .magnitude = 1.25f};
  const std::vector<float> table = make_rope_table(config, {}, 2);
  const auto angle_of_pair = [&](size_t pair) {
    return std::atan2(table[64 + 2 * pair + 1], table[64 + 2 * pair]);
  };
  EXPECT_NEAR(std::hypot(table[0], table[1]), 1.25, 1e-6);
  EXPECT_NEAR(angle_of_pair(0), 1.0,
              1e-6);  // the fastest pair is left alone
  const double slowest = std::pow(10000.0, -62.0 / 64);
  EXPECT_NEAR(angle_of_pair(31), slowest / 8.0, 1e-9);  // far less than one turn: interpolated fully
}

}  // namespace
}  // namespace minfer
