// Drafts of models with states: rejected drafts have changed the state, so the state before them is restored. The output is the same as
// without drafts, bit for bit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/engine/drafted_run.h"
#include "tests/support/engine/scheduler_steps.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

using test::Answers;
using test::decoding_sequence;
using test::DraftedRun;
using test::requests_of_few_words;
using test::run_drafted;
using test::with_ngrams;

EngineOptions state_options() {
  EngineOptions options = test::drafted_run_options();
  options.num_state_copies = 16;
  options.state_copy_rule = {.interval = 24, .reopened_tokens = 4, .least_tokens = 8};
  return options;
}

/// Options without drafts and without anything else that copies states.
EngineOptions plain_options() {
  EngineOptions options = test::drafted_run_options();
  options.enable_prefix_caching = false;
  return options;
}

class StateDrafts : public testing::TestWithParam<std::string> {
 protected:
  Engine engine(const EngineOptions& options) const {
    return Engine(open_model(test_model(GetParam())), options);
  }
  Answers plain(const std::vector<Request>& requests) const {
    Engine engine = this->engine(plain_options());
    return run_drafted(engine, requests).answers;
  }
  /// Runs the requests, and checks that no slot was lost.
  DraftedRun drafted(Engine& engine, const std::vector<Request>& requests) const {
    DraftedRun run = run_drafted(engine, requests);
    engine.scheduler().state_copies().check();
    EXPECT_EQ(engine.scheduler().state_copies().num_writing(), 0);
    return run;
  }
};

TEST_P(StateDrafts, ChangeNoOutput) {
  const std::vector<Request> requests = requests_of_few_words(20);
  const Answers expected = plain(requests);
  for (const int32_t num_copies : {1, 3, 16}) {
    for (const int32_t steps_ahead : {0, 1}) {
      EngineOptions options = with_ngrams(state_options());
      options.num_state_copies = num_copies;
      options.steps_ahead = steps_ahead;
      Engine engine = this->engine(options);
      const DraftedRun found = drafted(engine, requests);
      expect_same_answers(requests, found.answers, expected);
      EXPECT_GT(found.drafted.accepted_tokens, 10);
      EXPECT_GT(found.drafted.draft_tokens - found.drafted.accepted_tokens, 10) << "none were rejected";
    }
  }
}

TEST_P(StateDrafts, AdaptTheirNumberAndNothingElse) {
  const std::vector<Request> requests = requests_of_few_words(12, 100);
  EngineOptions options = with_ngrams(state_options(), 8);
  options.speculation.adaptive = true;
  Engine engine = this->engine(options);
  expect_same_answers(requests, drafted(engine, requests).answers, plain(requests));
}

/// Accepted tokens are computed again in pieces.
TEST_P(StateDrafts, AloneAndInBatchesAndInSmallBudgets) {
  const std::vector<Request> requests = requests_of_few_words(10, 200);
  const Answers expected = plain(requests);
  for (const auto& [num_seqs, budget] : {std::pair{1, 4}, {1, 300}, {3, 9}, {8, 8}, {8, 300}}) {
    EngineOptions options = with_ngrams(state_options(), 7);
    options.max_num_seqs = num_seqs;
    options.max_num_batched_tokens = budget;
    Engine engine = this->engine(options);
    expect_same_answers(requests, drafted(engine, requests).answers, expected);
  }
}

TEST_P(StateDrafts, InACacheThatIsTooSmallForAll) {
  const std::vector<Request> requests = requests_of_few_words(12, 300);
  EngineOptions options = with_ngrams(state_options());
  options.max_model_len = 160;
  options.num_blocks = 48;
  Engine engine = this->engine(options);
  const DraftedRun found = drafted(engine, requests);
  expect_same_answers(requests, found.answers, plain(requests));
  EXPECT_GT(found.num_preempted, 0);
  EXPECT_GT(found.drafted.accepted_tokens, 0);
}

/// Copies that are made beside drafts hold only the accepted tokens.
TEST_P(StateDrafts, LeavePrefixesThatOthersCanUse) {
  Engine drafting = engine(with_ngrams(state_options()));
  const std::vector<Request> requests = requests_of_few_words(8, 400);
  const Answers first = drafted(drafting, requests).answers;
  std::vector<Request> turns = requests;
  for (Request& turn : turns) {
    const std::vector<TokenId>& answer = first.at(turn.id).tokens;
    turn.prompt.insert(turn.prompt.end(), answer.begin(), answer.end());
  }
  const Answers expected = plain(turns);
  const DraftedRun found = drafted(drafting, turns);
  expect_same_answers(turns, found.answers, expected);
  int32_t num_behind_prompts = 0;
  for (size_t i = 0; i < turns.size(); ++i)
    num_behind_prompts += found.answers.at(turns[i].id).last.cached_tokens > std::ssize(requests[i].prompt);
  EXPECT_GT(num_behind_prompts, 0) << "no turn began with what was drafted";
}

TEST_P(StateDrafts, OnTwoRanks) {
  if (std::string_view(GetParam()) == "granite-hybrid") GTEST_SKIP() << "its one group is not divided";
  const std::vector<Request> requests = requests_of_few_words(8, 500);
  EngineOptions options = plain_options();
  options.tensor_parallel_size = 2;
  Engine plain = engine(options);
  const Answers expected = run_drafted(plain, requests).answers;
  options = with_ngrams(state_options());
  options.tensor_parallel_size = 2;
  Engine drafting = engine(options);
  const DraftedRun found = drafted(drafting, requests);
  expect_same_answers(requests, found.answers, expected);
  EXPECT_GT(found.drafted.draft_tokens, found.drafted.accepted_tokens);
}

TEST_P(StateDrafts, CancelledInTheMiddle) {
  const std::vector<Request> requests = requests_of_few_words(8, 600);
  const Answers expected = plain(requests);
  for (int32_t when = 3; when < 12; ++when) {
    Engine engine = this->engine(with_ngrams(state_options()));
    for (const Request& request : requests)
      engine.submit(request);
    Answers answers;
    for (int32_t step = 0; engine.has_work(); ++step) {
      if (step == when)
        for (size_t i = 0; i < requests.size(); i += 2)
          engine.cancel(requests[i].id);
      answers.step(engine);
    }
    engine.scheduler().state_copies().check();
    EXPECT_EQ(engine.scheduler().state_copies().num_writing(), 0);
    for (const Request& request : requests) {
      const std::vector<TokenId>& all = expected.at(request.id).tokens;
      const std::vector<TokenId>& found = answers.at(request.id).tokens;
      ASSERT_LE(found.size(), all.size());
      EXPECT_TRUE(std::equal(found.begin(), found.end(), all.begin())) << request.id;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StateDrafts,
                         testing::Values("qwen3next", "qwen35", "lfm2", "lfm2moe", "granite-hybrid",
                                         "nemotron-h", "kimi-linear", "synthetic:tiny-hybrid:f32"),
                         [](const auto& model) {
                           std::string name =
                               model.param.starts_with("synthetic") ? "tiny_hybrid" : model.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// Drafts from a model without states, with the same vocabulary.
TEST(StateDraftModel, ChangesNoOutput) {
  EngineOptions options = state_options();
  options.speculation.method = SpeculationMethod::draft;
  options.speculation.draft_model = open_model("synthetic:tiny:f32");
  options.speculation.num_tokens = 3;
  options.speculation.adaptive = false;
  Engine plain(open_model("synthetic:tiny-hybrid:f32"), plain_options());
  Engine drafting(open_model("synthetic:tiny-hybrid:f32"), options);
  const std::vector<Request> requests = requests_of_few_words(10, 700);
  const DraftedRun found = run_drafted(drafting, requests);
  expect_same_answers(requests, found.answers, run_drafted(plain, requests).answers);
  EXPECT_GT(found.drafted.accepted_tokens, 0);
  EXPECT_LT(found.drafted.accepted_tokens, found.drafted.draft_tokens);
}

EngineOptions scheduler_options() {
  EngineOptions options = test::small_options();
  options.num_state_slots = 4;
  options.is_recurrent = true;
  options.num_state_copies = 2;
  return options;
}

TEST(StateDraftSteps, WhatStandsIsComputedAgainWithTheStateInFront) {
  test::SchedulerSteps steps(scheduler_options());
  Sequence& a = decoding_sequence(steps, "a", 5);
  a.drafts = {1, 2, 3};
  EXPECT_EQ(steps.schedule(), "a:5+4*");
  ASSERT_EQ(steps.batch().state_restores.size(), 1u);
  const StateCopy kept = steps.batch().state_restores[0];
  EXPECT_EQ(kept.from, a.state_slot);
  EXPECT_GE(kept.to, 4) << "a slot of the copies";
  steps.scheduler().commit(steps.batch().sequences[0], std::vector<TokenId>{1, 2, 9});
  EXPECT_EQ(a.size(), 9);
  EXPECT_EQ(a.num_computed, 5);
  EXPECT_EQ(a.num_scheduled, 5);
  a.drafts = {7};
  EXPECT_EQ(steps.schedule(), "a:5+5*") << "two that stand, the newest and the one before them, and a draft";
  ASSERT_EQ(steps.batch().state_restores.size(), 1u);
  EXPECT_EQ(steps.batch().state_restores[0].from, kept.to);
  EXPECT_EQ(steps.batch().state_restores[0].to, a.state_slot);
  EXPECT_EQ(steps.batch().sequences[0].num_logit_rows, 2);
  EXPECT_EQ(steps.batch().sequences[0].state_before, kept.to) << "the copy stays";
  EXPECT_EQ(steps.scheduler().state_copies().num_writing(), 1);
  steps.scheduler().commit(steps.batch().sequences[0], std::vector<TokenId>{8});
  EXPECT_EQ(a.num_computed, 5);
  EXPECT_EQ(a.num_pending(), 5);
}

/// Tokens that are computed again and again become too many in the end: then they are computed without drafts.
TEST(StateDraftSteps, ManyThatStandHaveNoDrafts) {
  test::SchedulerSteps steps(scheduler_options());
  Sequence& a = decoding_sequence(steps, "a", 5);
  for (int32_t pending = 1; pending <= kMostRepeatedTokens; ++pending) {
    a.drafts = {1};
    EXPECT_EQ(steps.schedule(), fmt::format("a:5+{}*", pending + 1));
    steps.scheduler().commit(steps.batch().sequences[0], std::vector<TokenId>{9});
    EXPECT_EQ(a.num_computed, 5);
  }
  a.drafts = {1};
  EXPECT_EQ(steps.schedule(), fmt::format("a:5+{}*", kMostRepeatedTokens + 1));
  EXPECT_EQ(steps.batch().sequences[0].num_drafts, 0);
  ASSERT_EQ(steps.batch().state_restores.size(), 1u);
  EXPECT_EQ(steps.scheduler().state_copies().num_writing(), 0);
  steps.scheduler().commit(steps.batch().sequences[0], std::vector<TokenId>{9});
  EXPECT_EQ(a.num_pending(), 1);
}

TEST(StateDraftSteps, WhereAllStandNothingIsComputedAgain) {
  test::SchedulerSteps steps(scheduler_options());
  Sequence& a = decoding_sequence(steps, "a", 5);
  a.drafts = {1, 2};
  EXPECT_EQ(steps.schedule(), "a:5+3*");
  steps.scheduler().commit(steps.batch().sequences[0], std::vector<TokenId>{1, 2, 9});
  EXPECT_EQ(a.num_computed, 8);
  EXPECT_EQ(steps.scheduler().state_copies().num_writing(), 0);
  EXPECT_EQ(steps.schedule(), "a:8+1*");
  EXPECT_TRUE(steps.batch().state_restores.empty());
}

TEST(StateDraftSteps, NoMoreThanThereAreCopies) {
  test::SchedulerSteps steps(scheduler_options());
  for (const std::string id : {"a", "b", "c"})
    decoding_sequence(steps, id, 3);
  for (const std::string id : {"a", "b", "c"})
    steps[id].drafts = {1};
  steps.schedule();
  int32_t num_drafting = 0;
  for (const ScheduledSequence& entry : steps.batch().sequences)
    num_drafting += entry.num_drafts;
  EXPECT_EQ(num_drafting, 2);
  EXPECT_EQ(steps.batch().state_restores.size(), 2u);
}

}  // namespace
}  // namespace minfer
