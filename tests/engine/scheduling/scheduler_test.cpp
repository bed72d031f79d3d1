#include "engine/scheduling/scheduler.h"

#include <optional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "tests/support/engine/scheduler_steps.h"

namespace minfer::test {
namespace {

using ::testing::HasSubstr;

// Budget and chunks

TEST(Scheduler, IsEmptyWithoutWork) {
  SchedulerSteps steps(small_options());
  EXPECT_EQ(steps.step(), "");
  EXPECT_FALSE(steps.scheduler().has_work());
}

TEST(Scheduler, ComputesAPromptInChunksAndWantsLogitsOfTheLastOnly) {
  SchedulerSteps steps(small_options());
  steps.add("a", 18, 3);
  EXPECT_EQ(steps.step(), "| a:0+8");
  EXPECT_EQ(steps.step(), "| a:8+8");
  EXPECT_EQ(steps.step(), "| a:16+2*");
  EXPECT_EQ(steps.step(), "a:18+1*");
  EXPECT_EQ(steps.step(), "a:19+1*");
  EXPECT_EQ(steps.step(), "");
  EXPECT_EQ(steps["a"].finish, FinishReason::length);
  EXPECT_EQ(steps["a"].num_output_tokens(), 3);
}

TEST(Scheduler, GivesTheBudgetToDecodeFirstAndTheRestToPrefill) {
  SchedulerSteps steps(small_options());
  steps.add("a", 3);
  steps.add("b", 3);
  EXPECT_EQ(steps.step(), "| a:0+3* b:0+3*");
  steps.add("c", 20);
  EXPECT_EQ(steps.step(), "a:3+1* b:3+1* | c:0+6");
  EXPECT_EQ(steps.step(), "a:4+1* b:4+1* | c:6+6");
}

TEST(Scheduler, SharesTheBudgetAmongPrefillsInOrderOfArrival) {
  SchedulerSteps steps(small_options());
  steps.add("a", 5);
  steps.add("b", 9);
  EXPECT_EQ(steps.step(), "| a:0+5* b:0+3");
  EXPECT_EQ(steps.step(), "a:5+1* | b:3+6*");
}

TEST(Scheduler, ScoresAsManyPromptTokensAsAStepHasRoomFor) {
  EngineOptions options = small_options();
  options.max_num_batched_tokens = 60;
  options.max_model_len = 200;
  options.num_blocks = 64;
  SchedulerSteps steps(options);
  const std::vector<TokenId> prompt(100, 7);
  steps.add_prompt("a", prompt, 100, 0, true);
  steps.add("b", 10);
  steps.add_prompt("c", std::vector<TokenId>(10, 8), 100, 0, true);
  EXPECT_EQ(steps.step(), "| a:0+60*");
  EXPECT_EQ(steps.batch().sequences[0].num_scored, 60);
  EXPECT_EQ(steps.schedule(), "| a:60+40* b:0+10* c:0+10*");
  const ScheduledSequence& last_of_a = steps.batch().sequences[0];
  EXPECT_EQ(last_of_a.num_logit_rows, 40);
  EXPECT_EQ(last_of_a.num_scored, 39);
  EXPECT_EQ(last_of_a.num_drawn(), 1);
  steps.commit();
  EXPECT_EQ(steps.step(), "a:100+1* b:10+1* c:10+1*");
  EXPECT_EQ(steps.batch().sequences[0].num_scored, 0);

  // A cached prefix is computed again for a request that scores it, and used by one that does not.
  steps.add_prompt("d", prompt, 100, 0, true);
  EXPECT_EQ(steps.step(), "a:101+1* b:11+1* c:11+1* | d:0+57*");
  steps.cancel("d");
  steps.add_prompt("e", prompt);
  EXPECT_EQ(steps.step(), "a:102+1* b:12+1* c:12+1* | e:96+4*");
}

TEST(Scheduler, APromptThatIsOnlyScoredIsComputedButForItsLastToken) {
  EngineOptions options = small_options();
  options.max_num_batched_tokens = 60;
  SchedulerSteps steps(options);
  const std::vector<TokenId> prompt(64, 7);
  ASSERT_FALSE(steps.add_prompt("a", prompt, 0, 0, true)) << "as long as the context";
  EXPECT_EQ(steps.step(), "| a:0+60*");
  EXPECT_EQ(steps.step(), "| a:60+3*");
  EXPECT_EQ(steps.batch().sequences[0].num_drawn(), 0);
  EXPECT_FALSE(steps["a"].is_scoring());
  EXPECT_EQ(steps.schedule(), "");
  steps.cancel("a");
  EXPECT_TRUE(steps.add_prompt("b", std::vector<TokenId>(65, 7), 0, 0, true));
  EXPECT_FALSE(steps.add_prompt("c", prompt, 0));
  EXPECT_EQ(steps["c"].finish, FinishReason::length) << "there is nothing to do";
}

// Tokens that were not drawn are scored if the sequence goes on, and by a draw that was dropped for them.
TEST(Scheduler, ScoresAppendedTokens) {
  EngineOptions options = small_options();
  options.steps_ahead = 1;
  SchedulerSteps steps(options);
  steps.add("a", 3);
  steps.schedule();
  const ScheduledBatch first = steps.batch();
  steps.schedule();
  const ScheduledBatch ahead = steps.batch();
  steps.scheduler().commit(first.sequences[0], std::vector<TokenId>{1});
  steps.scheduler().append(steps["a"], std::vector<TokenId>{7, 8, 9});
  steps["a"].num_unscored = 3;
  EXPECT_EQ(ahead.sequences[0].num_scored_rows(), 1);
  EXPECT_EQ(ahead.sequences[0].first_row(), 3);
  EXPECT_EQ(steps.schedule(), "a:4+3*");
  const ScheduledSequence behind = steps.batch().sequences[0];
  EXPECT_EQ(behind.num_scored, 2);
  EXPECT_EQ(behind.num_drawn(), 1);
  EXPECT_EQ(behind.first_row(), 4);
  steps.scheduler().commit(ahead.sequences[0], {});
  EXPECT_EQ(steps["a"].num_unscored, 2);
  steps.scheduler().commit(behind, std::vector<TokenId>{10});
  EXPECT_EQ(steps["a"].num_unscored, 0);
}

TEST(Scheduler, WithChunkingOffAPromptIsComputedWholeOrNotAtAll) {
  EngineOptions options = small_options();
  options.enable_chunked_prefill = false;
  options.max_model_len = options.max_num_batched_tokens = 12;
  SchedulerSteps steps(options);
  steps.add("a", 7);
  steps.add("b", 6);
  EXPECT_EQ(steps.step(), "| a:0+7*");
  EXPECT_EQ(steps.step(), "a:7+1* | b:0+6*");
}

TEST(Scheduler, WithChunkingOffTheBudgetMustHoldAnySequence) {
  EngineOptions options = small_options();
  options.enable_chunked_prefill = false;
  try {
    SchedulerSteps steps(options);
    FAIL() << "no exception";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("max_num_batched_tokens: 8"));
    EXPECT_THAT(error.what(), HasSubstr("max_model_len = 64"));
  }
}

TEST(Scheduler, RunsNoMoreSequencesThanSlotsOrTokensOfTheBudget) {
  EngineOptions options = small_options();
  options.max_num_batched_tokens = 2;
  SchedulerSteps steps(options);
  for (const char* id : {"a", "b", "c"})
    steps.add(id, 1);
  EXPECT_EQ(steps.step(), "| a:0+1* b:0+1*");
  EXPECT_EQ(steps.step(), "a:1+1* b:1+1*");
  steps.cancel("a");
  EXPECT_EQ(steps.step(), "b:2+1* | c:0+1*");
}

// A sequence with several pending tokens, as after accepted drafts, brings them all.
TEST(Scheduler, ADecodingSequenceMayBringSeveralTokens) {
  SchedulerSteps steps(small_options());
  steps.add("a", 3);
  steps.step();
  steps["a"].tokens.push_back(7);
  EXPECT_EQ(steps.step(), "a:3+2*");
}

TEST(Scheduler, SchedulesAheadOfTheCommit) {
  SchedulerSteps steps(small_options());
  steps.add("a", 12);
  EXPECT_EQ(steps.schedule(), "| a:0+8");
  const ScheduledSequence first = steps.batch().sequences[0];
  EXPECT_EQ(steps.schedule(), "| a:8+4*");
  const ScheduledSequence second = steps.batch().sequences[0];
  EXPECT_EQ(steps.schedule(), "");
  EXPECT_THROW(steps.scheduler().commit(second, {}), std::logic_error) << "steps out of order";
  steps.scheduler().commit(first, {});
  EXPECT_EQ(steps["a"].num_computed, 8);
  steps.scheduler().commit(second, std::vector<TokenId>{1});
  EXPECT_EQ(steps.schedule(), "a:12+1*");
}

// With two sequences and a step ahead, the one that waits for its token is left out until the token is known.
TEST(Scheduler, DrawsNothingAheadForASequenceThatWaitsForItsToken) {
  EngineOptions options = small_options();
  options.steps_ahead = 1;
  SchedulerSteps steps(options);
  steps.add("a", 3);
  steps.add("b", 11);
  steps["b"].waits_for_token = true;
  EXPECT_EQ(steps.schedule(), "| a:0+3* b:0+5");
  const ScheduledBatch first = steps.batch();
  EXPECT_EQ(steps.schedule(), "a:3+1* | b:5+6*") << "a prompt is known";
  const ScheduledBatch second = steps.batch();
  steps.scheduler().commit(first.sequences[0], std::vector<TokenId>{1});
  steps.scheduler().commit(first.sequences[1], {});
  EXPECT_EQ(steps.schedule(), "a:4+1*") << "b's token is on its way";
  const ScheduledBatch third = steps.batch();
  steps.scheduler().commit(second.sequences[0], std::vector<TokenId>{2});
  steps.scheduler().commit(second.sequences[1], std::vector<TokenId>{3});
  EXPECT_EQ(steps.schedule(), "a:5+1* b:11+1*");
}

TEST(Scheduler, AppendedTokensShareAStepWithTheNewestOne) {
  EngineOptions options = small_options();
  options.max_model_len = 20;
  SchedulerSteps steps(options);
  steps.add("a", 3);
  steps.add("b", 3);
  EXPECT_EQ(steps.step(), "| a:0+3* b:0+3*");
  steps.scheduler().append(steps["a"], std::vector<TokenId>{7, 8, 9});
  EXPECT_EQ(steps["a"].num_output_tokens(), 4);
  EXPECT_EQ(steps.step(), "a:3+4* b:3+1*");
  EXPECT_EQ(steps.batch().num_decode_sequences, 2);
  // More tokens than a step has room for: the rest follows, and only then is a token drawn.
  steps.scheduler().append(steps["a"], std::vector<TokenId>(9, 7));
  EXPECT_EQ(steps.step(), "a:7+8");
  EXPECT_EQ(steps.step(), "a:15+2* b:4+1*");
  EXPECT_THROW(steps.scheduler().append(steps["a"], std::vector<TokenId>(3, 7)), std::logic_error)
      << "max_tokens";
  steps.scheduler().append(steps["a"], std::vector<TokenId>(2, 7));
}

TEST(Scheduler, AppendsToNoSequenceThatHasDrawnNothing) {
  EngineOptions options = small_options();
  options.steps_ahead = 1;
  SchedulerSteps steps(options);
  steps.add("a", 3);
  const std::vector<TokenId> token{7};
  EXPECT_THROW(steps.scheduler().append(steps["a"], token), std::logic_error) << "it waits";
  steps.schedule();
  EXPECT_THROW(steps.scheduler().append(steps["a"], token), std::logic_error)
      << "its first token is on its way";
  steps.commit();
  steps.scheduler().append(steps["a"], token);
  EXPECT_EQ(steps.schedule(), "a:3+2*");
}

// A step launched before the tokens were known draws a token in their place, which is dropped.
TEST(Scheduler, AppendedTokensDropWhatIsBeingDrawn) {
  EngineOptions options = small_options();
  options.steps_ahead = 1;
  SchedulerSteps steps(options);
  steps.add("a", 3);
  steps.add("b", 3);
  EXPECT_EQ(steps.schedule(), "| a:0+3* b:0+3*");
  const ScheduledBatch first = steps.batch();
  EXPECT_EQ(steps.schedule(), "a:3+1* b:3+1*");
  const ScheduledBatch second = steps.batch();
  const std::vector<TokenId> token{1};
  steps.scheduler().commit(first.sequences[0], token);
  steps.scheduler().commit(first.sequences[1], token);
  steps.scheduler().append(steps["a"], std::vector<TokenId>{7, 8});
  EXPECT_EQ(steps["a"].num_unknown, 0);
  EXPECT_EQ(steps.schedule(), "a:4+2* b:4+1*") << "all of a's tokens are known";
  const ScheduledBatch third = steps.batch();
  EXPECT_THROW(steps.scheduler().commit(second.sequences[0], token), std::logic_error);
  steps.scheduler().commit(second.sequences[0], {});
  EXPECT_EQ(steps["a"].num_dropped_draws, 0);
  steps.scheduler().commit(second.sequences[1], token);
  steps.scheduler().commit(third.sequences[0], token);
  EXPECT_EQ(steps["a"].tokens, (std::vector<TokenId>{1000, 1001, 1002, 1, 7, 8, 1}));
  EXPECT_EQ(steps["a"].num_computed, 6);
}

TEST(Scheduler, RejectsTokensThatNoLogitsGave) {
  SchedulerSteps steps(small_options());
  steps.add("a", 12);
  steps.schedule();
  EXPECT_THROW(steps.scheduler().commit(steps.batch().sequences[0], std::vector<TokenId>{1}),
               std::logic_error);
}

// Refusal

TEST(Scheduler, RefusesWhatCanNeverRun) {
  EngineOptions options = small_options();
  options.max_model_len = 100;
  SchedulerSteps steps(options);
  const auto reason = [&](int32_t num_tokens, int32_t max_tokens) {
    const auto refused = steps.add("x", num_tokens, max_tokens);
    EXPECT_EQ(steps["x"].finish == FinishReason::refused, refused.has_value());
    return refused.value_or("none");
  };
  EXPECT_THAT(reason(0, 1), HasSubstr("no tokens"));
  EXPECT_THAT(reason(100, 1), HasSubstr("max_model_len"));
  EXPECT_THAT(reason(99, 1), HasSubstr("whole KV cache"));
  EXPECT_THAT(reason(65, 1), HasSubstr("whole KV cache"));
  EXPECT_FALSE(steps.scheduler().has_work());
  EXPECT_EQ(reason(64, 1), "none");
}

TEST(Scheduler, RefusalNamesLimitAndValue) {
  SchedulerSteps steps(small_options());
  EXPECT_THAT(steps.add("a", 64).value(), HasSubstr("64 tokens"));
  EXPECT_THAT(steps.add("a", 70).value(), HasSubstr("max_model_len = 64"));
}

// Elsewhere, such a prompt sat at the head of the queue for ever.
TEST(Scheduler, APromptOverTheKvCapacityDoesNotBlockTheQueue) {
  EngineOptions options = small_options();
  options.max_model_len = 1000;
  SchedulerSteps steps(options);
  EXPECT_THAT(steps.add("big", 65).value(), HasSubstr("whole KV cache"));
  steps.add("a", 3);
  EXPECT_EQ(steps.step(), "| a:0+3*");
}

TEST(Scheduler, APromptThatFillsTheKvCacheExactlyRuns) {
  EngineOptions options = small_options();
  options.max_model_len = 1000;
  SchedulerSteps steps(options);
  EXPECT_EQ(steps.add("a", 64), std::nullopt);
  EXPECT_EQ(steps["a"].max_tokens, 1);
  for (int i = 0; i < 8; ++i)
    steps.step();
  EXPECT_EQ(steps["a"].finish, FinishReason::length);
}

TEST(Scheduler, CapsMaxTokensToWhatFits) {
  SchedulerSteps steps(small_options());
  steps.add("a", 60, 1000);
  EXPECT_EQ(steps["a"].max_tokens, 4);
  steps.add("b", 60, 3);
  EXPECT_EQ(steps["b"].max_tokens, 3);
}

// Cancellation

TEST(Scheduler, CancellingAQueuedSequenceLeavesTheRunningOnesAlone) {
  EngineOptions options = small_options();
  options.max_num_seqs = 1;
  SchedulerSteps steps(options);
  steps.add("a", 3);
  steps.add("b", 3);
  steps.add("c", 3);
  steps.step();
  steps.cancel("b");
  EXPECT_EQ(steps.step(), "a:3+1*");
  steps.cancel("a");
  EXPECT_EQ(steps.step(), "| c:0+3*");
}

TEST(Scheduler, CancellingDuringPrefillFreesItsBlocksAndStopsNobodyElse) {
  SchedulerSteps steps(small_options());
  steps.add("a", 3);
  steps.step();
  steps.add("b", 30);
  EXPECT_EQ(steps.step(), "a:3+1* | b:0+7");
  EXPECT_EQ(steps.blocks().num_live(), 3);
  steps.cancel("b");
  EXPECT_EQ(steps.blocks().num_live(), 1);
  EXPECT_EQ(steps.step(), "a:4+1*");
}

TEST(Scheduler, CancellingOneDuringTheChunksOfAnotherStopsNobodyElse) {
  SchedulerSteps steps(small_options());
  steps.add("a", 3);
  steps.add("b", 30);
  EXPECT_EQ(steps.step(), "| a:0+3* b:0+5");
  steps.cancel("a");
  EXPECT_EQ(steps.step(), "| b:5+8");
}

TEST(Scheduler, CancellingBetweenScheduleAndCommitIgnoresTheResult) {
  SchedulerSteps steps(small_options());
  steps.add("a", 3);
  steps.add("b", 3);
  steps.schedule();
  steps.cancel("a");
  steps.commit();
  EXPECT_EQ(steps["a"].num_output_tokens(), 0);
  EXPECT_EQ(steps.blocks().num_live(), 1);
  EXPECT_EQ(steps.step(), "b:3+1*");
}

TEST(Scheduler, FinishingTwiceKeepsTheFirstReason) {
  SchedulerSteps steps(small_options());
  steps.add("a", 3);
  steps.cancel("a");
  steps.scheduler().finish(steps["a"], FinishReason::stop);
  EXPECT_EQ(steps["a"].finish, FinishReason::cancelled);
}

TEST(Scheduler, APreemptedSequenceCanBeCancelled) {
  EngineOptions options = small_options();
  options.num_blocks = 4;
  options.max_model_len = 16;
  SchedulerSteps steps(options);
  steps.add("a", 4);
  steps.add("b", 4);
  while (steps["b"].num_preemptions == 0)
    steps.step();
  steps.cancel("b");
  EXPECT_EQ(steps.scheduler().num_waiting(), 0);
  while (steps.scheduler().has_work())
    steps.step();
  EXPECT_EQ(steps["a"].finish, FinishReason::length);
  EXPECT_EQ(steps.blocks().num_live(), 0);
}

}  // namespace
}  // namespace minfer::test
