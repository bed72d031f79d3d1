// Preemption, admission, prefix cache and priority: the scheduler's actions when slots or blocks run out.

#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/scheduling/batch_builder.h"
#include "engine/scheduling/scheduler.h"
#include "tests/support/allocations.h"
#include "tests/support/engine/scheduler_steps.h"

namespace minfer::test {
namespace {

// Preemption and admission

TEST(SchedulerPreemption, PreemptsTheYoungestAndRecomputesItFirst) {
  EngineOptions options = small_options();
  options.num_blocks = 5;
  options.max_model_len = 20;
  options.enable_prefix_caching = false;
  SchedulerSteps steps(options);
  steps.add("a", 4);
  steps.add("b", 4);
  EXPECT_EQ(steps.step(), "| a:0+4* b:0+4*");
  steps.add("c", 1);
  for (int32_t position = 4; position < 8; ++position) {
    EXPECT_EQ(steps.step(), fmt::format("a:{0}+1* b:{0}+1*", position))
        << "c needs a block beside room to grow for a and b";
  }
  EXPECT_EQ(steps.step(), "a:8+1*") << "the fifth block goes to a; b finds none";
  EXPECT_EQ(steps.batch().num_preempted, 1);
  EXPECT_EQ(steps["b"].size(), 9) << "what was generated is kept";
  EXPECT_EQ(steps["b"].status, SequenceStatus::waiting);
  while (steps["a"].status == SequenceStatus::running)
    steps.step();
  EXPECT_EQ(steps.step(), "| b:0+8") << "before c, which came later";
  EXPECT_EQ(steps.step(), "| b:8+1* c:0+1*");
  EXPECT_EQ(steps.step(), "b:9+1* c:1+1*");
}

TEST(SchedulerPreemption, TheFirstAdvancesInEveryStepHoweverFewTheBlocks) {
  EngineOptions options = small_options();
  options.num_blocks = 5;
  options.max_model_len = 20;
  SchedulerSteps steps(options);
  for (const char* id : {"a", "b", "c", "d", "e", "f"})
    steps.add(id, 9, 11);
  int num_steps = 0;
  while (steps.scheduler().has_work()) {
    steps.schedule();
    ASSERT_FALSE(steps.batch().empty());
    const Sequence* first = steps.scheduler().running()[0];
    const int32_t num_computed = first->num_computed;
    steps.commit();
    ASSERT_TRUE(first->status == SequenceStatus::finished || first->num_computed > num_computed);
    ASSERT_LT(++num_steps, 200);
  }
  for (const char* id : {"a", "b", "c", "d", "e", "f"})
    EXPECT_EQ(steps[id].num_output_tokens(), 11);
}

TEST(SchedulerPreemption, AdmitsAsSoonAsBlocksAreFree) {
  SchedulerSteps steps(small_options());
  steps.add("a", 8, 50);
  steps.step();
  steps.add("b", 56);
  EXPECT_EQ(steps.step(), "a:8+1*") << "b needs 14 blocks, and one for a to grow into";
  steps.cancel("a");
  EXPECT_EQ(steps.step(), "| b:0+8");
}

TEST(SchedulerPreemption, TheFirstInTheQueueIsNotOvertaken) {
  SchedulerSteps steps(small_options());
  steps.add("a", 8, 50);
  steps.step();
  steps.add("b", 56);
  steps.add("c", 1);
  EXPECT_EQ(steps.step(), "a:8+1*");
  steps.cancel("b");
  EXPECT_EQ(steps.step(), "a:9+1* | c:0+1*");
}

// Prefix cache

class ReusedPrefix : public ::testing::TestWithParam<int32_t> {};

TEST_P(ReusedPrefix, WholeBlocksAreReusedAndATokenIsLeftToCompute) {
  const int32_t num_tokens = GetParam();
  SchedulerSteps steps(small_options());
  std::vector<TokenId> prompt(static_cast<size_t>(num_tokens));
  std::iota(prompt.begin(), prompt.end(), 100);
  steps.add_prompt("a", prompt, 1);
  while (steps.scheduler().has_work())
    steps.step();
  steps.add_prompt("b", prompt, 1);
  const int32_t expected = (num_tokens - 1) / 4 * 4;
  EXPECT_EQ(steps.step(), fmt::format("| b:{}+{}*", expected, num_tokens - expected));
  EXPECT_EQ(steps["b"].num_cached_tokens, expected);
  EXPECT_EQ(steps.batch().prefix_hit_tokens, expected);
}

INSTANTIATE_TEST_SUITE_P(AroundTheBlockSize, ReusedPrefix, ::testing::Values(1, 3, 4, 5, 7, 8, 9, 12, 13));

TEST(SchedulerPreemption, APromptIsSharedOnceItIsComputedNotBefore) {
  SchedulerSteps steps(small_options());
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
  steps.add_prompt("a", prompt);
  EXPECT_EQ(steps.schedule(), "| a:0+5*");
  steps.add_prompt("b", prompt);
  steps.commit();
  EXPECT_EQ(steps.step(), "a:5+1* | b:4+1*");
  EXPECT_EQ(steps["a"].blocks[0], steps["b"].blocks[0]);
}

TEST(SchedulerPreemption, TwoOfTheSamePromptInOneStepComputeItEach) {
  SchedulerSteps steps(small_options());
  const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
  steps.add_prompt("a", prompt);
  steps.add_prompt("b", prompt);
  EXPECT_EQ(steps.step(), "| a:0+5* b:0+3");
  EXPECT_NE(steps["a"].blocks[0], steps["b"].blocks[0]);
}

TEST(SchedulerPreemption, APreemptedSequenceFindsItsOwnBlocksAgain) {
  EngineOptions options = small_options();
  options.policy = SchedulingPolicy::priority;
  options.max_num_seqs = 1;
  SchedulerSteps steps(options);
  steps.add("low", 6, 20, 1);
  for (int i = 0; i < 4; ++i)
    steps.step();
  EXPECT_EQ(steps["low"].size(), 10);
  steps.add("high", 2, 1, 0);
  EXPECT_EQ(steps.step(), "| high:0+2*");
  EXPECT_EQ(steps.step(), "| low:8+2*") << "two blocks from the cache";
  EXPECT_EQ(steps["low"].num_cached_tokens, 0) << "of its prompt none came from the cache at first";
  EXPECT_EQ(steps.step(), "low:10+1*");
}

// Priority

EngineOptions priority_options() {
  EngineOptions options = small_options();
  options.policy = SchedulingPolicy::priority;
  options.max_num_seqs = 2;
  return options;
}

TEST(SchedulerPriority, ServesLowerValuesFirstThenByArrival) {
  EngineOptions options = priority_options();
  options.max_num_seqs = 4;
  SchedulerSteps steps(options);
  steps.add("a", 2, 9, 5);
  steps.add("b", 2, 9, 1);
  steps.add("c", 2, 9, 5);
  steps.add("d", 2, 9, -1);
  EXPECT_EQ(steps.step(), "| d:0+2* b:0+2* a:0+2* c:0+2*");
}

TEST(SchedulerPriority, CountsForNothingUnderFcfs) {
  SchedulerSteps steps(small_options());
  steps.add("a", 2, 9, 5);
  steps.add("b", 2, 9, 1);
  EXPECT_EQ(steps.step(), "| a:0+2* b:0+2*");
}

TEST(SchedulerPriority, PreemptsTheLastForASlot) {
  SchedulerSteps steps(priority_options());
  steps.add("a", 2, 9, 1);
  steps.add("b", 2, 9, 2);
  steps.step();
  steps.add("c", 2, 9, 0);
  EXPECT_EQ(steps.step(), "a:2+1* | c:0+2*");
  EXPECT_EQ(steps["b"].status, SequenceStatus::waiting);
}

TEST(SchedulerPriority, DoesNotPreemptItsEquals) {
  SchedulerSteps steps(priority_options());
  steps.add("a", 2, 9, 1);
  steps.add("b", 2, 9, 1);
  steps.step();
  steps.add("c", 2, 9, 1);
  EXPECT_EQ(steps.step(), "a:2+1* b:2+1*");
}

TEST(SchedulerPriority, PreemptsForBlocks) {
  SchedulerSteps steps(priority_options());
  steps.add("a", 40, 9, 1);
  for (int i = 0; i < 5; ++i)
    steps.step();
  steps.add("b", 40, 9, 0);
  EXPECT_EQ(steps.step(), "| b:0+7") << "one token of the budget was set aside for a's decode";
  EXPECT_EQ(steps["a"].num_preemptions, 1);
}

TEST(SchedulerPriority, PreemptsNobodyInVain) {
  EngineOptions options = priority_options();
  options.max_num_seqs = 4;
  SchedulerSteps steps(options);
  steps.add("first", 40, 9, 0);
  for (int i = 0; i < 5; ++i)
    steps.step();
  steps.add("last", 4, 9, 2);
  steps.step();
  steps.add("middle", 40, 9, 1);
  EXPECT_EQ(steps.step(), "first:41+1* last:4+1*") << "even without `last` there are too few blocks";
}

TEST(SchedulerPriority, ACachedPrefixThatAPreemptionFreedNeedsFreeBlocksAgain) {
  EngineOptions options = priority_options();
  options.max_num_seqs = 4;
  SchedulerSteps steps(options);
  steps.add("first", 16, 40, 0);
  for (int i = 0; i < 3; ++i)
    steps.step();
  std::vector<TokenId> prompt(32);
  std::iota(prompt.begin(), prompt.end(), 5000);
  steps.add_prompt("last", prompt, 30, 2);
  while (steps["last"].num_output_tokens() < 2)
    steps.step();
  ASSERT_EQ(steps.blocks().num_free(), 16 - (steps["first"].size() - 1 + 3) / 4 - 9);
  prompt.resize(8);
  prompt.resize(44);
  steps.add_prompt("middle", prompt, 20, 1);
  steps.step();
  EXPECT_EQ(steps["last"].num_preemptions, 1);
  EXPECT_EQ(steps["middle"].status, SequenceStatus::waiting)
      << "11 blocks and one for `first` to grow into, but no more than 11 are free";
}

TEST(SchedulerPriority, AHighPriorityPrefillTakesBlocksFromALowPriorityDecode) {
  EngineOptions options = priority_options();
  options.num_blocks = 6;
  options.max_model_len = 24;
  SchedulerSteps steps(options);
  steps.add("low", 4, 20, 1);
  for (int i = 0; i < 4; ++i)
    steps.step();
  steps.add("high", 12, 12, 0);
  EXPECT_EQ(steps.step(), "low:7+1* | high:0+7");
  EXPECT_EQ(steps.step(), "low:8+1* | high:7+5*");
  for (int i = 12; i < 16; ++i)
    steps.step();
  EXPECT_EQ(steps["low"].num_preemptions, 1);
  EXPECT_EQ(steps["high"].num_preemptions, 0);
}

// Cost

TEST(SchedulerPreemption, ADecodeStepAllocatesNothing) {
  EngineOptions options = small_options();
  options.num_blocks = 64;
  options.max_num_batched_tokens = 16;
  SchedulerSteps steps(options);
  BatchBuilder builder(options);
  for (const char* id : {"a", "b", "c", "d", "waiting"})
    steps.add(id, 4);
  steps.step();
  const uint64_t before = thread_allocations();
  for (int i = 0; i < 50; ++i) {
    const ScheduledBatch& batch = steps.scheduler().schedule();
    builder.build(batch);
    for (const ScheduledSequence& each : batch.sequences) {
      const TokenId sampled = i;
      steps.scheduler().commit(each, {&sampled, 1});
    }
  }
  EXPECT_EQ(thread_allocations() - before, 0);
  EXPECT_EQ(steps["d"].size(), 55);
}

}  // namespace
}  // namespace minfer::test
