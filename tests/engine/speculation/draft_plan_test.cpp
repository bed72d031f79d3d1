#include "engine/speculation/draft_plan.h"

#include <cmath>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace minfer {
namespace {

/// Costs as if steps had been measured often: without drafts, and with each number of drafts up to `most`.
DraftCosts measured_costs(int32_t num_sequences, int32_t most, const std::function<double(int32_t)>& ns) {
  DraftCosts costs;
  for (int repeat = 0; repeat < 5; ++repeat) {
    for (int32_t drafts = 0; drafts <= most; ++drafts)
      costs.add(num_sequences, drafts, static_cast<int64_t>(ns(drafts)));
  }
  return costs;
}

DraftCandidate candidate(float rate, int32_t most) {
  DraftCandidate made{.most = most};
  float chance = 1.0f;
  for (int32_t i = 0; i < most; ++i)
    made.chances[static_cast<size_t>(i)] = chance *= rate;
  return made;
}

TEST(DraftCosts, AreMediansAndBetweenThemALine) {
  DraftCosts costs;
  EXPECT_TRUE(costs.lacks_baseline(2));
  EXPECT_EQ(costs.estimate(2, 0), 0.0);
  for (const int64_t ns : {1000, 5000, 1000, 1200, 900})
    costs.add(2, 0, ns);
  EXPECT_FALSE(costs.lacks_baseline(2));
  EXPECT_TRUE(costs.lacks_baseline(3));
  EXPECT_EQ(costs.estimate(2, 0), 1000.0);
  EXPECT_GT(costs.estimate(2, 4), 1000.0);
  EXPECT_LT(costs.estimate(2, 4), 1500.0) << "not known: as if they cost little, so that they are tried";
  for (int i = 0; i < 3; ++i)
    costs.add(2, 4, 3000);
  EXPECT_EQ(costs.estimate(2, 4), 3000.0);
  EXPECT_EQ(costs.estimate(2, 2), 2000.0);
  EXPECT_EQ(costs.estimate(2, 8), 5000.0);
}

TEST(DraftCosts, ABaselineThatIsOldIsMeasuredAgain) {
  DraftCosts costs = measured_costs(1, 2, [](int32_t) { return 1000.0; });
  for (int i = 0; i < 200; ++i)
    costs.add(1, 2, 1000);
  EXPECT_TRUE(costs.lacks_baseline(1));
  costs.add(1, 0, 1000);
  EXPECT_FALSE(costs.lacks_baseline(1));
}

TEST(DraftCosts, OldOrFewMeasurementsOfDraftsCountAsCheaper) {
  DraftCosts costs;
  for (int i = 0; i < 3; ++i)
    costs.add(1, 0, 1000);
  costs.add(1, 4, 9000);
  EXPECT_LT(costs.estimate(1, 4), 9000.0) << "measured once";
  for (int i = 0; i < 2; ++i)
    costs.add(1, 4, 9000);
  EXPECT_EQ(costs.estimate(1, 4), 9000.0);
  for (int i = 0; i < 400; ++i)
    costs.add(1, 0, 1000);
  EXPECT_LT(costs.estimate(1, 4), 9000.0) << "long ago";
}

TEST(DraftCosts, SizesUpToTheLargestHaveAPlace) {
  DraftCosts costs;
  for (const int32_t size : {1, 15, 16, 17, 255, 256, 65536, 1 << 20}) {
    for (int i = 0; i < 3; ++i)
      costs.add(size, 0, 1000 + size);
    EXPECT_FALSE(costs.lacks_baseline(size));
  }
  EXPECT_EQ(costs.estimate(1 << 20, 0), 1000.0 + (1 << 20));
}

TEST(DraftPlanner, AsManyAsPay) {
  DraftPlanner planner;
  std::vector<DraftCandidate> one{candidate(0.9f, 8)};
  const DraftSituation situation{.num_sequences = 1, .most_drafts = 100};
  const DraftCosts free = measured_costs(1, 16, [](int32_t) { return 1000.0; });
  EXPECT_GT(planner.plan(one, situation, free), 4.0);
  EXPECT_EQ(one[0].num_drafts, 8);
  const DraftCosts dear = measured_costs(1, 16, [](int32_t drafts) { return 1000.0 * (1 + drafts); });
  EXPECT_EQ(planner.plan(one, situation, dear), 1.0);
  EXPECT_EQ(one[0].num_drafts, 0);
  const DraftCosts steps =
      measured_costs(1, 16, [](int32_t drafts) { return drafts <= 3 ? 1000.0 : 4000.0; });
  planner.plan(one, situation, steps);
  EXPECT_EQ(one[0].num_drafts, 3);
}

TEST(DraftPlanner, WhatMakingDraftsTakesCounts) {
  DraftPlanner planner;
  std::vector<DraftCandidate> one{candidate(0.9f, 8)};
  const DraftCosts costs = measured_costs(1, 16, [](int32_t) { return 1000.0; });
  DraftSituation situation{.num_sequences = 1, .most_drafts = 100, .draft_pass_ns = 200.0};
  const double gain = planner.plan(one, situation, costs);
  EXPECT_GT(gain, 1.5);
  EXPECT_GT(one[0].num_drafts, 2);
  EXPECT_LT(one[0].num_drafts, 8);
  situation.draft_fixed_ns = 5000.0;
  EXPECT_EQ(planner.plan(one, situation, costs), 1.0);
  EXPECT_EQ(one[0].num_drafts, 0);
}

TEST(DraftPlanner, NeedsAGainToBeginWith) {
  DraftPlanner planner;
  std::vector<DraftCandidate> one{candidate(0.5f, 1)};
  const DraftCosts costs = measured_costs(1, 4, [](int32_t drafts) { return 1000.0 + 450.0 * drafts; });
  DraftSituation situation{.num_sequences = 1, .most_drafts = 100, .least_gain = 1.05};
  EXPECT_EQ(planner.plan(one, situation, costs), 1.0);
  situation.least_gain = 1.0;
  EXPECT_NEAR(planner.plan(one, situation, costs), 1.5 / 1.45, 1e-6);
}

// No division of drafts among sequences gives more than the planner's.
TEST(DraftPlanner, NoOtherDivisionIsBetter) {
  std::mt19937 random(5);
  DraftPlanner planner;
  for (int round = 0; round < 100; ++round) {
    std::vector<DraftCandidate> candidates;
    for (int i = 0; i < 3; ++i)
      candidates.push_back(candidate(0.1f + 0.85f * static_cast<float>(random() % 100) / 100.0f, 3));
    std::vector<double> ns{1000.0};
    while (ns.size() < 10)
      ns.push_back(ns.back() + static_cast<double>(random() % 500));
    const DraftCosts costs =
        measured_costs(3, 9, [&](int32_t drafts) { return std::floor(ns[static_cast<size_t>(drafts)]); });
    const double gain = planner.plan(candidates, {.num_sequences = 3, .most_drafts = 100}, costs);
    double best = 1.0;
    for (int32_t code = 0; code < 64; ++code) {
      double tokens = 3.0;
      int32_t drafts = 0;
      for (int32_t i = 0, rest = code; i < 3; ++i, rest /= 4) {
        for (int32_t j = 0; j < rest % 4; ++j, ++drafts)
          tokens += candidates[static_cast<size_t>(i)].chances[static_cast<size_t>(j)];
      }
      best = std::max(best, tokens / 3.0 * costs.estimate(3, 0) / costs.estimate(3, drafts));
    }
    EXPECT_NEAR(gain, best, 0.02) << "round " << round;  // drafts with a chance below 0.02 are left out
  }
}

}  // namespace
}  // namespace minfer
