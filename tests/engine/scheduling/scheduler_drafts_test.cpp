// Draft tokens in the scheduler: what they take, and what remains of rejected ones.
#include <gtest/gtest.h>

#include "tests/support/engine/scheduler_steps.h"

namespace minfer::test {
namespace {

TEST(SchedulerDrafts, AreComputedBehindTheNewestTokenAndEachHasARow) {
  SchedulerSteps steps(small_options());
  Sequence& a = decoding_sequence(steps, "a", 5);
  a.drafts = {1, 2, 3};
  EXPECT_EQ(steps.schedule(), "a:5+4*");
  const ScheduledSequence entry = steps.batch().sequences[0];
  EXPECT_EQ(entry.num_logit_rows, 4);
  EXPECT_EQ(entry.num_drafts, 3);
  EXPECT_EQ(steps.batch().num_tokens, 4);
  const std::vector<TokenId> drawn{1, 2, 9};
  steps.scheduler().commit(entry, drawn);
  EXPECT_EQ(a.size(), 9);
  EXPECT_EQ(a.num_computed, 8) << "the newest token is not computed, nor is the draft in its place";
  EXPECT_EQ(a.num_scheduled, 8);
  EXPECT_EQ(a.num_unknown, 0);
  EXPECT_TRUE(a.drafts.empty());
  EXPECT_EQ(a.num_published_blocks, 2) << "of 4 tokens: 0 to 7 are the sequence's own";
  EXPECT_EQ(steps.schedule(), "a:8+1*");
}

TEST(SchedulerDrafts, ARejectedOneIsNeverPublished) {
  SchedulerSteps steps(small_options());
  Sequence& a = decoding_sequence(steps, "a", 6);
  a.drafts = {1, 2, 3, 4, 5};
  EXPECT_EQ(steps.schedule(), "a:6+6*");
  const std::vector<TokenId> drawn{7};
  steps.scheduler().commit(steps.batch().sequences[0], drawn);
  EXPECT_EQ(a.num_computed, 7);
  EXPECT_EQ(a.num_published_blocks, 1) << "of 12 tokens that were computed 7 count";
  steps.scheduler().blocks().check(std::vector<const Sequence*>{&a});
}

TEST(SchedulerDrafts, TakeWhatDecodingLeavesOfTheBudgetAndPrefillTheRest) {
  SchedulerSteps steps(small_options());  // 8 tokens a step
  Sequence& a = decoding_sequence(steps, "a", 3);
  Sequence& b = decoding_sequence(steps, "b", 3);
  steps.add("c", 10);
  a.drafts = {1, 2, 3};
  EXPECT_EQ(steps.step(), "a:4+4* b:3+1* | c:0+3");
  a.drafts = {1, 2, 3, 4};
  b.drafts = {1, 2, 3, 4};
  const std::string step = steps.schedule();
  EXPECT_EQ(step.find('|'), std::string::npos) << step;
  EXPECT_EQ(a.drafts.size(), 4u);
  EXPECT_EQ(b.drafts.size(), 2u) << "the budget ends there";
}

TEST(SchedulerDrafts, PreemptNobody) {
  EngineOptions options = small_options();
  options.num_blocks = 4;
  SchedulerSteps steps(options);
  Sequence& a = decoding_sequence(steps, "a", 3);
  Sequence& b = decoding_sequence(steps, "b", 3);
  a.drafts = {1, 2, 3, 4, 5, 6};
  steps.schedule();
  EXPECT_EQ(steps.batch().num_preempted, 0);
  EXPECT_EQ(a.status, SequenceStatus::running);
  EXPECT_EQ(b.status, SequenceStatus::running);
  EXPECT_LT(a.drafts.size(), 6u) << "no free block is left that the others would miss";
}

TEST(SchedulerDrafts, AreForgottenWithAPreemption) {
  EngineOptions options = small_options();
  options.num_blocks = 4;
  options.policy = SchedulingPolicy::priority;
  SchedulerSteps steps(options);
  Sequence& a = decoding_sequence(steps, "a", 6);
  a.drafts = {1};
  steps.schedule();
  const ScheduledSequence entry = steps.batch().sequences[0];
  steps.add("first", 12, 4, -1);
  steps.schedule();
  EXPECT_EQ(a.status, SequenceStatus::waiting);
  EXPECT_TRUE(a.drafts.empty());
  EXPECT_FALSE(entry.is_current());
  EXPECT_EQ(a.num_unknown, 0);
}

TEST(SchedulerDrafts, KeepASequenceOutOfTheStepBehind) {
  EngineOptions options = small_options();
  options.steps_ahead = 1;
  SchedulerSteps steps(options);
  Sequence& a = decoding_sequence(steps, "a", 5);
  a.drafts = {1, 2};
  EXPECT_EQ(steps.schedule(), "a:5+3*");
  EXPECT_EQ(steps.schedule(), "");
}

}  // namespace
}  // namespace minfer::test
