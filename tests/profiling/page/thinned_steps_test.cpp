#include "profiling/page/thinned_steps.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace minfer {
namespace {

StepSummary step(int64_t number, double wall_us) {
  StepSummary summary;
  summary.step = number;
  summary.wall_us = wall_us;
  return summary;
}

/// Times between 1,000 and 2,000 us, all different.
double ordinary_us(int64_t number) {
  return 1000.0 + static_cast<double>(number * 7919 % 100'003) * 0.00999;
}

TEST(ThinnedSteps, KeepsAllOfAFew) {
  ThinnedSteps thinned;
  for (int64_t i = 0; i < 700; ++i)
    thinned.add(step(i, ordinary_us(i)));
  const std::vector<StepSummary> steps = thinned.steps();
  ASSERT_EQ(steps.size(), 700u);
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_EQ(steps[i].step, static_cast<int64_t>(i));
  EXPECT_EQ(thinned.steps_of_bucket(), 1);
}

TEST(ThinnedSteps, OfManyItKeepsTheRangeOfEachBucketAndEverySlowStep) {
  ThinnedSteps thinned;
  constexpr int64_t kCount = 100'000;
  double shortest = 1e9;
  for (int64_t i = 0; i < kCount; ++i) {
    // Ten slow steps side by side: one bucket has room for one.
    const double us = i >= 50'000 && i < 50'010 ? 9000.0 + static_cast<double>(i - 50'000) : ordinary_us(i);
    shortest = std::min(shortest, us);
    thinned.add(step(i, us));
  }
  const std::vector<StepSummary> steps = thinned.steps();
  EXPECT_LE(steps.size(), 2 * ThinnedSteps::kMostBuckets + ThinnedSteps::kSlowest);
  EXPECT_GE(steps.size(), ThinnedSteps::kMostBuckets / 2);
  EXPECT_TRUE(std::ranges::is_sorted(steps, {}, &StepSummary::step));
  EXPECT_EQ(std::ranges::adjacent_find(steps, {}, &StepSummary::step), steps.end()) << "one step twice";
  for (int64_t slow = 50'000; slow < 50'010; ++slow)
    EXPECT_EQ(std::ranges::count(steps, slow, &StepSummary::step), 1) << slow;
  EXPECT_EQ(std::ranges::min(steps, {}, &StepSummary::wall_us).wall_us, shortest);
  // Every bucket is represented: no gap is wider than two buckets.
  for (size_t i = 1; i < steps.size(); ++i)
    EXPECT_LE(steps[i].step - steps[i - 1].step, 2 * thinned.steps_of_bucket());
  EXPECT_LE(kCount - steps.back().step, 2 * thinned.steps_of_bucket());
}

TEST(ThinnedSteps, EqualTimesAreNoReasonToLoseAll) {
  ThinnedSteps thinned;
  for (int64_t i = 0; i < 5000; ++i)
    thinned.add(step(i, 1000.0));
  EXPECT_GE(thinned.steps().size(), ThinnedSteps::kMostBuckets / 2);
}

}  // namespace
}  // namespace minfer
