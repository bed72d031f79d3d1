// Drafts by a model. A model that drafts for itself is always right, unless its cache differs from the target's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/speculation/speculator.h"
#include "kernels/base/error.h"
#include "tests/support/engine/drafted_run.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer {
namespace {

using test::Answers;
using test::drafted_run_options;
using test::DraftedRun;
using test::run_drafted;
using test::varied_requests;

EngineOptions with_draft_model(EngineOptions options, const std::string& model, int32_t num_tokens = 4) {
  options.speculation.method = SpeculationMethod::draft;
  options.speculation.draft_model = open_model(model);
  options.speculation.num_tokens = num_tokens;
  options.speculation.adaptive = false;
  return options;
}

/// Varied like the others, but none ends before max_tokens.
std::vector<Request> requests_to_the_end(const Engine& engine, size_t count) {
  std::vector<Request> requests = varied_requests(engine, count, 700);
  for (Request& request : requests) {
    request.sampling.ignore_eos = true;
    request.sampling.stop.clear();
    request.sampling.stop_token_ids.clear();
  }
  return requests;
}

TEST(DraftModel, TheSameModelIsAlwaysRight) {
  Engine plain(open_model(""), drafted_run_options());
  const std::vector<Request> requests = requests_to_the_end(plain, 10);
  const DraftedRun expected = run_drafted(plain, requests);
  Engine drafting(open_model(""), with_draft_model(drafted_run_options(), ""));
  const DraftedRun found = run_drafted(drafting, requests);
  expect_same_answers(requests, found.answers, expected.answers);
  EXPECT_EQ(found.drafted.accepted_tokens, found.drafted.draft_tokens)
      << "common random numbers draw the same";
  EXPECT_LT(found.num_steps, expected.num_steps / 2);
}

TEST(DraftModel, TheSameModelIsAlwaysRightThroughPreemptionsAndPrefixHitsAndChunks) {
  Engine plain(open_model(""), drafted_run_options());
  const std::vector<Request> requests = requests_to_the_end(plain, 10);
  const Answers expected = run_drafted(plain, requests).answers;
  for (const bool prefix_caching : {true, false}) {
    EngineOptions options = with_draft_model(drafted_run_options(), "", 6);
    options.max_model_len = 160;
    options.num_blocks = 44;
    options.max_num_batched_tokens = 24;
    options.enable_prefix_caching = prefix_caching;
    Engine drafting(open_model(""), options);
    for (const char* again : {"first", "again"}) {
      const DraftedRun found = run_drafted(drafting, requests);
      expect_same_answers(requests, found.answers, expected);
      EXPECT_GT(found.num_preempted, 0) << again;
      EXPECT_GT(found.drafted.draft_tokens, 0) << again;
      EXPECT_EQ(found.drafted.accepted_tokens, found.drafted.draft_tokens) << again;
    }
  }
}

TEST(DraftModel, AnotherModelChangesNothing) {
  Engine plain(open_model("synthetic:tiny:f32"), drafted_run_options());
  Engine drafting(open_model("synthetic:tiny:f32"),
                  with_draft_model(drafted_run_options(), "synthetic:tiny:q4_0"));
  std::vector<Request> requests;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    Request request = test::greedy_request(std::to_string(seed), test::kTinyPrompt, 40);
    request.prompt.push_back(static_cast<TokenId>(seed));
    request.sampling.temperature = seed % 3 == 0 ? 0.0f : 0.3f;
    request.sampling.seed = seed;
    requests.push_back(std::move(request));
  }
  const DraftedRun found = run_drafted(drafting, requests);
  expect_same_answers(requests, found.answers, run_drafted(plain, requests).answers);
  EXPECT_GT(found.drafted.accepted_tokens, 0);
  EXPECT_LT(found.drafted.accepted_tokens, found.drafted.draft_tokens) << "none was wrong";
}

TEST(DraftModel, AdaptsAndWaitsForTokensAndChangesNothing) {
  Engine plain(open_model(""), drafted_run_options());
  const std::vector<Request> requests = varied_requests(plain, 7, 800);
  const Answers expected = run_drafted(plain, requests).answers;
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = with_draft_model(drafted_run_options(), "");
    options.speculation.adaptive = true;
    options.steps_ahead = steps_ahead;
    Engine drafting(open_model(""), options);
    expect_same_answers(requests, run_drafted(drafting, requests).answers, expected);
  }
}

// A draft model with unknown worth costs a share of the time that steps took, whatever prompts there are.
TEST(DraftModel, ComputesNoPromptThatCostsMoreThanItMaySpendBeforeItsWorthIsKnown) {
  EngineOptions options = with_draft_model(drafted_run_options(), "");
  options.speculation.adaptive = true;
  options.enable_prefix_caching = false;
  Engine drafting(open_model(""), options);
  const auto draft_tokens_of = [&](int32_t prompt_tokens, int32_t output_tokens) {
    Request request = test::greedy_request("a", std::vector<TokenId>(prompt_tokens, 65), output_tokens);
    request.sampling.ignore_eos = true;
    return run_drafted(drafting, {request}).drafted.draft_tokens;
  };
  EXPECT_EQ(draft_tokens_of(200, 20), 0) << "what a prompt takes is not known yet";
  int64_t drafted = 0;
  for (int i = 0; i < 200 && drafted == 0; ++i)
    drafted = draft_tokens_of(8, 200);
  EXPECT_GT(drafted, 0) << "short prompts are tried in time";
}

TEST(TrialBudget, IsAShareOfTheTimeOfStepsLessWhatWasSpent) {
  TrialBudget budget;
  EXPECT_EQ(budget.left_ns(), 0.0);
  budget.step_took(1600.0);
  EXPECT_EQ(budget.left_ns(), 100.0);
  budget.spent(60.0);
  EXPECT_EQ(budget.left_ns(), 40.0);
  budget.spent(60.0);
  EXPECT_EQ(budget.left_ns(), 0.0) << "debts are remembered";
  budget.step_took(400.0);
  EXPECT_EQ(budget.left_ns(), 5.0);
}

TEST(DraftModel, WithAnotherVocabularyIsRefused) {
  try {
    Engine engine(open_model("synthetic:tiny"), with_draft_model(test::tiny_engine_options(), ""));
    FAIL() << "was taken";
  } catch (const Error& error) {
    const std::string demo = std::to_string(open_model("")->config().vocab_size);
    EXPECT_THAT(error.what(), testing::HasSubstr("speculative-model"));
    EXPECT_THAT(error.what(), testing::HasSubstr("vocabulary of " + demo + ", expected 512"));
  }
}

TEST(DraftModel, NeedsAModelAndASingleRank) {
  EngineOptions options = test::tiny_engine_options();
  options.speculation.method = SpeculationMethod::draft;
  EXPECT_THROW(Engine(open_model("synthetic:tiny"), options), Error);
  options = with_draft_model(options, "synthetic:tiny");
  options.tensor_parallel_size = 2;
  EXPECT_THROW(Engine(open_model("synthetic:tiny"), options), Error);
}

TEST(Speculation, OptionsOutOfRangeAreRefused) {
  for (auto [num_tokens, max, min] :
       {std::tuple(0, 4, 1), std::tuple(17, 4, 1), std::tuple(4, 9, 1), std::tuple(4, 2, 3)}) {
    EngineOptions options = test::tiny_engine_options();
    options.speculation = {
        .method = SpeculationMethod::ngram, .num_tokens = num_tokens, .ngram_max = max, .ngram_min = min};
    EXPECT_THROW(Engine(open_model("synthetic:tiny"), options), Error);
  }
}

}  // namespace
}  // namespace minfer
