// Shorter prompts first, within bounds.
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/engine/scheduler_steps.h"

namespace minfer::test {
namespace {

EngineOptions shortest_options() {
  EngineOptions options = small_options();
  options.policy = SchedulingPolicy::shortest;
  options.num_blocks = 256;
  options.max_model_len = 512;
  options.enable_prefix_caching = false;
  return options;
}

TEST(SchedulerShortest, AShortPromptGoesInFrontOfALongOne) {
  SchedulerSteps steps(shortest_options());
  steps.add("long", 40);
  EXPECT_EQ(steps.step(), "| long:0+8");
  steps.add("short", 4);
  EXPECT_EQ(steps.step(), "| short:0+4* long:8+4");
  EXPECT_EQ(steps.step(), "short:4+1* | long:12+7");
}

TEST(SchedulerShortest, PromptsOfOneLengthAreServedAsTheyCome) {
  SchedulerSteps steps(shortest_options());
  steps.add("a", 6);
  steps.add("b", 6);
  steps.add("c", 6);
  EXPECT_EQ(steps.step(), "| a:0+6* b:0+2");
  EXPECT_EQ(steps.step(), "a:6+1* | b:2+4* c:0+3");
}

// If prompts come behind one of n tokens, fewer than n of their tokens are computed before it, however many come.
TEST(SchedulerShortest, ALongPromptIsOvertakenByNoMoreTokensThanItHas) {
  EngineOptions options = shortest_options();
  options.max_num_seqs = 8;
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    SchedulerSteps steps(options);
    std::mt19937_64 random(seed);
    constexpr int32_t kLong = 200;
    steps.add("first", 30, 1);
    steps.add("long", kLong, 1);
    int32_t num_others = 0, overtaking = 0;
    while (steps["long"].finish != FinishReason::length) {
      ASSERT_LT(num_others, 1000) << "it waits for ever";
      // More prompts come than a step computes.
      for (int i = 0; i < 3; ++i)
        steps.add("other " + std::to_string(num_others++), static_cast<int32_t>(1 + random() % 20), 1);
      steps.schedule();
      for (const ScheduledSequence& each : steps.batch().sequences)
        if (each.sequence->id.starts_with("other")) overtaking += each.num_tokens;
      steps.commit();
    }
    EXPECT_LT(overtaking, kLong + options.max_num_batched_tokens);
    EXPECT_GT(overtaking, kLong / 2) << "shorter ones do go first";
  }
}

// Running sequences do not lose their places and blocks to a shorter prompt.
TEST(SchedulerShortest, NobodyIsPreemptedForAShorterPrompt) {
  EngineOptions options = shortest_options();
  options.max_num_seqs = 2;
  SchedulerSteps steps(options);
  steps.add("a", 40);
  steps.add("b", 40);
  for (int i = 0; i < 12; ++i)
    steps.step();
  ASSERT_TRUE(steps["b"].is_decoding());
  steps.add("short", 1);
  EXPECT_EQ(steps.step(), "a:47+1* b:41+1*");
  EXPECT_EQ(steps["b"].num_preemptions, 0);
  steps.cancel("a");
  EXPECT_EQ(steps.step(), "b:42+1* | short:0+1*");
}

}  // namespace
}  // namespace minfer::test
