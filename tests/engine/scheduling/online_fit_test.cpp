#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "engine/scheduling/step_cost.h"

namespace minfer::test {
namespace {

using Fit = OnlineFit<3>;

constexpr Fit::Features kTrue{5.0, 2.0, 0.5};

double true_value(const Fit::Features& x) {
  return kTrue[0] * x[0] + kTrue[1] * x[1] + kTrue[2] * x[2];
}

Fit::Features random_features(std::mt19937_64& random) {
  std::uniform_real_distribution<double> size(0.0, 4.0);
  return {1.0, size(random), size(random)};
}

double relative_error(const Fit& fit, const Fit::Features& x, double expected) {
  return std::abs(fit.predict(x) - expected) / expected;
}

TEST(OnlineFit, KnowsNothingAtFirst) {
  const Fit fit;
  EXPECT_EQ(fit.predict({1.0, 1.0, 1.0}), 0.0);
  EXPECT_EQ(fit.count(), 0);
}

TEST(OnlineFit, ASampleIsExplainedByTheFirstFeature) {
  Fit fit;
  fit.add({1.0, 3.0, 0.0}, 12.0);
  EXPECT_NEAR(fit.predict({1.0, 3.0, 0.0}), 12.0, 1e-9);
  EXPECT_NEAR(fit.coefficients()[0], 12.0, 1e-9);
}

TEST(OnlineFit, FindsTheCoefficientsOfVariedSamples) {
  std::mt19937_64 random(1);
  Fit fit;
  for (int i = 0; i < 300; ++i) {
    const Fit::Features x = random_features(random);
    fit.add(x, true_value(x));
  }
  for (size_t i = 0; i < kTrue.size(); ++i)
    EXPECT_NEAR(fit.coefficients()[i], kTrue[i], 1e-3) << i;
}

TEST(OnlineFit, OutliersMoveItLittle) {
  std::mt19937_64 random(2);
  Fit fit;
  for (int i = 0; i < 400; ++i) {
    const Fit::Features x = random_features(random);
    const bool is_held_up = i >= 50 && i % 20 == 7;
    fit.add(x, true_value(x) * (is_held_up ? 30.0 : 1.0));
  }
  EXPECT_LT(relative_error(fit, {1.0, 2.0, 2.0}, true_value({1.0, 2.0, 2.0})), 0.1);
}

TEST(OnlineFit, FollowsAChangeForGood) {
  std::mt19937_64 random(3);
  for (const double factor : {8.0, 0.125}) {
    Fit fit;
    for (int i = 0; i < 2000; ++i) {
      const Fit::Features x = random_features(random);
      fit.add(x, true_value(x));
    }
    for (int i = 0; i < 1000; ++i) {
      const Fit::Features x = random_features(random);
      fit.add(x, factor * true_value(x));
    }
    EXPECT_LT(relative_error(fit, {1.0, 2.0, 2.0}, factor * true_value({1.0, 2.0, 2.0})), 0.05) << factor;
  }
}

// Weights underflow in the end. Coefficients that are no longer observed must stay as they are, and recover later.
TEST(OnlineFit, KeepsWhatNothingIsSaidOf) {
  std::mt19937_64 random(4);
  Fit fit;
  for (int i = 0; i < 300; ++i) {
    const Fit::Features x = random_features(random);
    fit.add(x, true_value(x));
  }
  for (int i = 0; i < 300'000; ++i)
    fit.add({1.0, 0.0, 0.0}, kTrue[0]);
  EXPECT_NEAR(fit.coefficients()[1], kTrue[1], 1e-2);
  EXPECT_NEAR(fit.predict({1.0, 0.0, 0.0}), kTrue[0], 1e-6);
  for (int i = 0; i < 300; ++i) {
    const Fit::Features x = random_features(random);
    fit.add(x, 3.0 * true_value(x));
  }
  EXPECT_LT(relative_error(fit, {1.0, 2.0, 2.0}, 3.0 * true_value({1.0, 2.0, 2.0})), 0.05);
}

TEST(OnlineFit, NeverFallsWithAFeatureAndTakesNoNonsense) {
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> any(0.0, 100.0);
  Fit fit;
  for (int i = 0; i < 2000; ++i) {
    fit.add(random_features(random), any(random));
    if (i % 50 == 0) {
      fit.add({1.0, 1.0, 1.0}, 0.0);
      fit.add({1.0, 1.0, 1.0}, -1.0);
      fit.add({1.0, 1.0, 1.0}, std::nan(""));
      fit.add({1.0, 1.0, 1.0}, INFINITY);
    }
    for (const double each : fit.coefficients()) {
      ASSERT_TRUE(std::isfinite(each));
      ASSERT_GE(each, 0.0);
    }
  }
  EXPECT_EQ(fit.count(), 2000);
}

TEST(OnlineFit, TheSameSamplesGiveTheSameBits) {
  Fit a, b;
  for (Fit* fit : {&a, &b}) {
    std::mt19937_64 random(6);
    for (int i = 0; i < 500; ++i) {
      const Fit::Features x = random_features(random);
      fit->add(x, true_value(x) + 1e-3 * static_cast<double>(random() % 1000));
    }
  }
  EXPECT_EQ(a.coefficients(), b.coefficients());
}

}  // namespace
}  // namespace minfer::test
