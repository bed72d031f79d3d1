#include "profiling/summary/distribution.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace minfer {
namespace {

Distribution distribution_of(std::initializer_list<double> values) {
  Distribution sum;
  for (const double value : values)
    sum.add(value);
  return sum;
}

TEST(Distribution, ByHand) {
  const Statistics even = distribution_of({4.0, 1.0, 3.0, 2.0}).statistics();
  EXPECT_DOUBLE_EQ(even.mean, 2.5);
  EXPECT_DOUBLE_EQ(even.median, 2.5);
  EXPECT_DOUBLE_EQ(even.min, 1.0);
  EXPECT_DOUBLE_EQ(even.max, 4.0);
  EXPECT_DOUBLE_EQ(even.sd, std::sqrt(5.0 / 3.0));
  EXPECT_DOUBLE_EQ(distribution_of({9.0, 1.0, 2.0}).quantile(0.5), 2.0);
  EXPECT_DOUBLE_EQ(distribution_of({7.0}).statistics().sd, 0.0);
  EXPECT_DOUBLE_EQ(Distribution().quantile(0.5), 0.0);
  EXPECT_DOUBLE_EQ(distribution_of({0.0, 0.0, 1e-9, 1e300}).max(), 1e300);
}

TEST(Distribution, QuantilesAreWithinABin) {
  std::mt19937_64 random(1);
  std::lognormal_distribution<double> values(3.0, 1.5);
  Distribution sum, front, back;
  std::vector<double> sorted;
  for (int i = 0; i < 20'001; ++i) {
    sorted.push_back(values(random));
    sum.add(sorted.back());
    (i % 3 == 0 ? front : back).add(sorted.back());
  }
  std::ranges::sort(sorted);
  front.add(back);
  for (const double share : {0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0}) {
    const double exact = sorted[static_cast<size_t>(std::lround(share * 20'000))];
    EXPECT_NEAR(sum.quantile(share), exact, 0.008 * exact) << share;
    EXPECT_NEAR(front.quantile(share), sum.quantile(share), 1e-9 * exact) << "put together of two";
  }
  EXPECT_NEAR(front.mean(), sum.mean(), 1e-9 * sum.mean());
  EXPECT_NEAR(front.variance(), sum.variance(), 1e-9 * sum.variance());
  EXPECT_EQ(front.count(), sum.count());
}

// Bins grow with the range of the values, not with the number of values.
TEST(Distribution, MemoryIsBounded) {
  Distribution sum;
  for (int i = 0; i < 1000; ++i)
    sum.add(50.0 + i % 50);
  const size_t bytes = sum.bytes();
  for (int i = 0; i < 100'000; ++i)
    sum.add(50.0 + i % 50);
  EXPECT_EQ(sum.bytes(), bytes);
  for (const double value : {0.0, 1e-300, 1e300})
    sum.add(value);
  EXPECT_LE(sum.bytes(), 300u << 10);
}

}  // namespace
}  // namespace minfer
