#include "engine/scheduling/step_cost.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "engine/scheduling/prefill_budget.h"
#include "tests/support/engine/step_shapes.h"

namespace minfer::test {
namespace {

double error_of(const StepCost& cost, const BatchShape& shape, double true_us) {
  return std::abs(static_cast<double>(cost.predict_ns(shape)) * 1e-3 - true_us) / true_us;
}

/// Steps of a server: some sequences decode, now and then beside a piece of a prompt.
template <class Cost>
void run_traffic(StepCost& cost, Cost true_us, int steps, uint64_t seed, double noise = 0.0) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> held_up(0.0, noise);
  for (int i = 0; i < steps; ++i) {
    const auto sequences = static_cast<int32_t>(1 + random() % 32);
    const int32_t prompt = random() % 4 == 0 ? static_cast<int32_t>(16 + random() % 1000) : 0;
    const BatchShape shape = step_shape(sequences, static_cast<int32_t>(random() % 2000), prompt,
                                        static_cast<int32_t>(random() % 2000));
    const double factor = noise > 0.0 ? held_up(random) : 1.0;
    cost.observe(shape, static_cast<int64_t>(1e3 * factor * true_us(shape)));
  }
}

TEST(StepCost, KnowsNothingAtFirst) {
  const StepCost cost;
  EXPECT_EQ(cost.predict_ns(step_shape(4, 100, 0)), 0);
  EXPECT_EQ(cost.predict_ns(step_shape(0, 0, 100)), 0);
  EXPECT_EQ(cost.most_tokens_seen(), 0);
}

TEST(StepCost, LearnsADeviceBoundByArithmetic) {
  StepCost cost;
  run_traffic(cost, arithmetic_us, 3000, 1);
  for (const int32_t sequences : {1, 4, 16, 32}) {
    for (const int32_t prompt : {0, 16, 100, 700}) {
      const BatchShape shape = step_shape(sequences, 500, prompt, 300);
      EXPECT_LT(error_of(cost, shape, arithmetic_us(shape)), 0.05) << sequences << " beside " << prompt;
    }
  }
}

// Reading the weights takes as long as computing 300 tokens.
TEST(StepCost, LearnsADeviceBoundByMemoryAndThenByArithmetic) {
  StepCost cost;
  run_traffic(cost, roofline_us, 3000, 2);
  for (const int32_t prompt : {0, 16, 64, 128, 512, 1000}) {
    const BatchShape shape = step_shape(8, 500, prompt, 300);
    EXPECT_LT(error_of(cost, shape, roofline_us(shape)), 0.25) << prompt;
  }
}

TEST(StepCost, LearnsFromNoisySteps) {
  StepCost cost;
  run_traffic(cost, arithmetic_us, 3000, 3, 0.3);
  for (const int32_t prompt : {0, 100, 700}) {
    const BatchShape shape = step_shape(16, 500, prompt, 300);
    EXPECT_LT(error_of(cost, shape, arithmetic_us(shape)), 0.2) << prompt;
  }
}

// The first step of a server takes ten times as long as similar ones. The later steps have pieces of one size beside decoding.
TEST(StepCost, ColdStepsAndPiecesOfOneSizeDoNotMisleadIt) {
  StepCost cost;
  const BatchShape first = step_shape(0, 0, 136);
  cost.observe(first, static_cast<int64_t>(1e4 * arithmetic_us(first)));
  for (int32_t i = 0; i < 100; ++i) {
    const BatchShape decode = step_shape(1 + i % 4, 100 + i, 0), piece = step_shape(1 + i % 4, 100 + i, 16);
    cost.observe(decode, static_cast<int64_t>(1e3 * arithmetic_us(decode)));
    cost.observe(piece, static_cast<int64_t>(1e3 * arithmetic_us(piece)));
  }
  const BatchShape piece = step_shape(2, 100, 16);
  EXPECT_LT(error_of(cost, piece, arithmetic_us(piece)), 0.05);
  for (const int32_t prompt : {64, 300}) {
    const BatchShape shape = step_shape(2, 100, prompt);
    EXPECT_LT(static_cast<double>(cost.predict_ns(shape)), 2e3 * arithmetic_us(shape))
        << "too dear to be tried";
  }
}

TEST(StepCost, NeverFallsWithTheTokensOfPrompts) {
  for (const uint64_t seed : {4, 5, 6, 7}) {
    StepCost cost;
    std::mt19937_64 random(seed);
    for (int i = 0; i < 200; ++i) {
      cost.observe(step_shape(static_cast<int32_t>(random() % 9), 100, static_cast<int32_t>(random() % 700)),
                   static_cast<int64_t>(random() % 1'000'000));
    }
    int64_t before = 0;
    for (int32_t prompt = 1; prompt < 3000; prompt += 7) {
      const int64_t predicted = cost.predict_ns(step_shape(3, 200, prompt));
      ASSERT_GE(predicted, before) << prompt;
      before = predicted;
    }
  }
}

// A record's times may be arbitrary.
TEST(StepCost, StaysBoundedWhateverTheClockSays) {
  StepCost cost;
  for (const int64_t ns : {int64_t{0}, int64_t{-5}, INT64_MAX, INT64_MIN, int64_t{1}}) {
    cost.observe(step_shape(1, 1 << 20, 1 << 20, 1 << 20), ns);
    cost.observe(step_shape(1, 1 << 20, 0), ns);
  }
  EXPECT_GE(cost.predict_ns(step_shape(60000, 1 << 20, 1 << 20, 1 << 20)), 0);
  EXPECT_GE(cost.predict_ns(step_shape(60000, 1 << 20, 0)), 0);
}

}  // namespace
}  // namespace minfer::test
