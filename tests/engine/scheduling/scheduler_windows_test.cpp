// Scheduling if layers with windows have their own block table.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/engine/scheduler_steps.h"

namespace minfer::test {
namespace {

/// 16 blocks, each of 8 tokens of layers with full attention or 4 of layers with a window of 6; 8 tokens a step.
EngineOptions window_options() {
  EngineOptions options = small_options();
  options.kv_layout = KvLayout{.parts = 2, .window_parts = 2, .window = 6, .has_window_table = true};
  return options;
}

TEST(SchedulerWindows, ASequenceHoldsOnlyWhatIsRead) {
  SchedulerSteps steps(window_options());
  steps.add("a", 30, 100);
  while (steps["a"].num_computed < 30) {
    steps.step();
    EXPECT_LE(steps["a"].num_held_blocks(), 4 + 5);
  }
  while (steps["a"].status == SequenceStatus::running) {
    steps.step();
    EXPECT_LE(steps["a"].num_held_blocks(), 8 + 3);
  }
  EXPECT_EQ(steps["a"].size(), 64);
  EXPECT_EQ(steps.blocks().num_live(), 0);
}

TEST(SchedulerWindows, APrefixIsFoundWithWhatItsWindowHeld) {
  SchedulerSteps steps(window_options());
  std::vector<TokenId> prompt(30);
  std::iota(prompt.begin(), prompt.end(), 1);
  steps.add_prompt("a", prompt, 1);
  while (steps.scheduler().has_work())
    steps.step();
  steps.add_prompt("b", prompt, 1);
  EXPECT_EQ(steps.step(), "| b:24+6*") << "three blocks of 8 tokens";
  prompt.insert(prompt.end(), 20, 7);
  steps.add_prompt("c", prompt, 20);
  steps.add_prompt("d", prompt, 20);
  EXPECT_EQ(steps.step(), "| c:24+8");
  while (steps.scheduler().has_work())
    steps.step();
  EXPECT_EQ(steps["c"].num_output_tokens(), 14);
  EXPECT_EQ(steps["d"].num_output_tokens(), 14);
}

TEST(SchedulerWindows, WhatIsPreemptedIsComputedAgainToItsEnd) {
  for (const bool caching : {true, false}) {
    EngineOptions options = window_options();
    options.enable_prefix_caching = caching;
    options.num_blocks = 13;
    SchedulerSteps steps(options);
    for (const char* id : {"a", "b", "c"})
      steps.add(id, 9, 40);
    int32_t num_preempted = 0;
    for (int32_t i = 0; steps.scheduler().has_work(); ++i) {
      ASSERT_LT(i, 400);
      steps.step();
      num_preempted += steps.batch().num_preempted;
    }
    EXPECT_GT(num_preempted, 0);
    for (const char* id : {"a", "b", "c"})
      EXPECT_EQ(steps[id].num_output_tokens(), 40);
    EXPECT_EQ(steps.blocks().num_live(), 0);
  }
}

TEST(SchedulerWindows, ACancelledOneGivesBackBothKinds) {
  SchedulerSteps steps(window_options());
  steps.add("a", 20, 40);
  for (int32_t i = 0; i < 10; ++i)
    steps.step();
  EXPECT_GT(steps.blocks().num_live(), 0);
  steps.schedule();
  steps.cancel("a");
  steps.commit();
  EXPECT_EQ(steps.blocks().num_live(), 0);
}

TEST(SchedulerWindows, TheLongestPromptThatFitsRuns) {
  EngineOptions options = window_options();
  options.num_blocks = 10;  // 5 for 40 tokens, 5 for the window and a step
  SchedulerSteps steps(options);
  ASSERT_TRUE(steps.add("a", 41, 1));
  ASSERT_FALSE(steps.add("b", 40, 5));
  EXPECT_EQ(steps["b"].max_tokens, 1);
  while (steps.scheduler().has_work())
    steps.step();
  EXPECT_EQ(steps["b"].num_output_tokens(), 1);
  EXPECT_EQ(steps["b"].num_preemptions, 0);
}

}  // namespace
}  // namespace minfer::test
