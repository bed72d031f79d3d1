#include "profiling/report/outliers.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace minfer {
namespace {

StepSummary even_step(int64_t number) {
  StepSummary step;
  step.step = number;
  step.wall_us = 1'000.0;
  step.gpu_us = 990.0;
  step.gpu_idle_us = 10.0;
  step.batch.shape.decode_tokens = step.batch.shape.decode_sequences = 8;
  step.ops = {{.op = "qkv", .us = 600.0, .launches = {}}, {.op = "attention", .us = 390.0, .launches = {}}};
  return step;
}

const StepFeature* found(const std::vector<StepFeature>& features, std::string_view name) {
  const auto place = std::ranges::find(features, name, &StepFeature::name);
  return place == features.end() ? nullptr : &*place;
}

TEST(Outliers, NameWhatDiffersInTheSlowestHundredth) {
  OutlierSum sum;
  for (int64_t i = 0; i < 1'000; ++i) {
    StepSummary step = even_step(i);
    if (i % 100 == 7) {
      step.wall_us = 3'000.0;
      step.ops[1].us = 2'390.0;
      step.batch.shape.prefill_tokens = 512;
      step.ops.push_back({.op = "attention_prefill", .us = 0.5, .launches = {}});
    }
    sum.add(step);
  }
  const Outliers outliers = sum.result();
  EXPECT_EQ(outliers.steps, 10);
  EXPECT_DOUBLE_EQ(outliers.from_us, 3'000.0);
  EXPECT_NEAR(outliers.share, 30.0 / 1'020.0, 1e-9);
  ASSERT_FALSE(outliers.times.empty());
  EXPECT_EQ(outliers.times.front().name, "attention");
  EXPECT_NEAR(outliers.times.front().slowest, 2'390.0, 1e-3);
  EXPECT_NEAR(outliers.times.front().all, 410.0, 1e-3);
  EXPECT_EQ(found(outliers.times, "qkv"), nullptr) << "as long in all";
  ASSERT_NE(found(outliers.shapes, "% with prompts"), nullptr);
  EXPECT_DOUBLE_EQ(found(outliers.shapes, "% with prompts")->slowest, 100.0);
  EXPECT_NEAR(found(outliers.shapes, "% with prompts")->all, 1.0, 1e-6);
  EXPECT_EQ(found(outliers.shapes, "decoding sequences"), nullptr);
  const Table table = outliers_table(outliers);
  EXPECT_EQ(table.rows.front().front(), "attention (us)");
}

TEST(Outliers, SlowStepsAtTheBeginAreNotForgotten) {
  OutlierSum sum;
  for (int64_t i = 0; i < 20'000; ++i) {
    StepSummary step = even_step(i);
    step.wall_us = i < 200 ? 9'000.0 : 1'000.0 + static_cast<double>(i % 7);
    sum.add(step);
  }
  EXPECT_EQ(sum.result().steps, 200);
  EXPECT_DOUBLE_EQ(sum.result().from_us, 9'000.0);
}

TEST(Outliers, FewStepsHaveNone) {
  OutlierSum sum;
  for (int64_t i = 0; i < 50; ++i)
    sum.add(even_step(i));
  EXPECT_EQ(sum.result().steps, 0);
}

}  // namespace
}  // namespace minfer
