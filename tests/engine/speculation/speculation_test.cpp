// With drafts the output is the same as without, bit for bit, whatever the drafts are and however a request ends.
#include <gtest/gtest.h>

#include "tests/support/engine/drafted_run.h"
#include "tests/support/engine/grammar_requests.h"
#include "tests/support/engine/tiny_engine.h"

namespace minfer {
namespace {

using test::Answer;
using test::Answers;
using test::drafted_run_options;
using test::DraftedRun;
using test::run_drafted;
using test::varied_requests;
using test::with_ngrams;

TEST(Speculation, GivesTheSameOutputForManyParametersAndSeeds) {
  Engine plain(open_model(""), drafted_run_options());
  Engine drafting(open_model(""), with_ngrams(drafted_run_options()));
  const std::vector<Request> requests = varied_requests(plain, 40);
  const DraftedRun expected = run_drafted(plain, requests);
  const DraftedRun found = run_drafted(drafting, requests);
  expect_same_answers(requests, found.answers, expected.answers);
  EXPECT_EQ(expected.drafted.draft_tokens, 0);
  EXPECT_GT(found.drafted.accepted_tokens, 100);
  EXPECT_GT(found.drafted.draft_tokens - found.drafted.accepted_tokens, 100) << "none were rejected";
  EXPECT_LT(found.num_steps, expected.num_steps);
  SpeculationCounts of_requests;
  for (const Request& request : requests)
    of_requests += found.answers.at(request.id).last.drafted;
  EXPECT_EQ(of_requests.drafts, found.drafted.drafts);
  EXPECT_EQ(of_requests.draft_tokens, found.drafted.draft_tokens);
  EXPECT_EQ(of_requests.accepted_tokens, found.drafted.accepted_tokens);
}

TEST(Speculation, AdaptsTheNumberOfDraftsAndNothingElse) {
  EngineOptions options = with_ngrams(drafted_run_options(), 8);
  options.speculation.adaptive = true;
  Engine plain(open_model(""), drafted_run_options());
  Engine drafting(open_model(""), options);
  const std::vector<Request> requests = varied_requests(plain, 20, 1000);
  const Answers expected = run_drafted(plain, requests).answers;
  expect_same_answers(requests, run_drafted(drafting, requests).answers, expected);
}

TEST(Speculation, AloneAndInBatchesAndInSmallBudgets) {
  Engine plain(open_model(""), drafted_run_options());
  const std::vector<Request> requests = varied_requests(plain, 12, 500);
  const Answers expected = run_drafted(plain, requests).answers;
  for (const auto& [num_seqs, budget] : {std::pair{1, 4}, {1, 300}, {3, 9}, {12, 4}, {12, 300}}) {
    EngineOptions options = with_ngrams(drafted_run_options(), 7);
    options.max_num_seqs = num_seqs;
    options.max_num_batched_tokens = budget;
    Engine drafting(open_model(""), options);
    expect_same_answers(requests, run_drafted(drafting, requests).answers, expected);
  }
}

TEST(Speculation, WaitsForItsTokenWhereStepsAreLaunchedAhead) {
  Engine plain(open_model(""), drafted_run_options());
  const std::vector<Request> requests = varied_requests(plain, 14, 200);
  const Answers expected = run_drafted(plain, requests).answers;
  for (const bool adaptive : {false, true}) {
    EngineOptions options = with_ngrams(drafted_run_options());
    options.speculation.adaptive = adaptive;
    options.steps_ahead = 1;
    Engine drafting(open_model(""), options);
    ASSERT_EQ(drafting.options().steps_ahead, 1);
    const DraftedRun found = run_drafted(drafting, requests);
    expect_same_answers(requests, found.answers, expected);
    EXPECT_TRUE(adaptive || found.drafted.accepted_tokens > 0);
  }
}

TEST(Speculation, InACacheThatIsTooSmallForAll) {
  Engine plain(open_model(""), drafted_run_options());
  std::vector<Request> requests = varied_requests(plain, 14, 300);
  const Answers expected = run_drafted(plain, requests).answers;
  for (const bool prefix_caching : {true, false}) {
    EngineOptions options = with_ngrams(drafted_run_options());
    options.max_model_len = 160;
    options.num_blocks = 42;
    options.enable_prefix_caching = prefix_caching;
    Engine drafting(open_model(""), options);
    const DraftedRun found = run_drafted(drafting, requests);
    expect_same_answers(requests, found.answers, expected);
    EXPECT_GT(found.num_preempted, 0);
    EXPECT_GT(found.drafted.accepted_tokens, 0);
  }
}

// The cache of a drafted text equals the cache of computing it: rejected tokens leave nothing behind.
TEST(Speculation, LeavesAPrefixCacheThatOthersCanUse) {
  Engine drafting(open_model(""), with_ngrams(drafted_run_options()));
  const std::vector<Request> requests = varied_requests(drafting, 10, 400);
  const DraftedRun first = run_drafted(drafting, requests);
  EXPECT_GT(first.drafted.draft_tokens, first.drafted.accepted_tokens);
  EngineOptions cold_options = drafted_run_options();
  cold_options.enable_prefix_caching = false;
  Engine cold(open_model(""), cold_options);
  int32_t num_cached = 0;
  for (Request request : requests) {
    const int32_t prompt_size = static_cast<int32_t>(request.prompt.size());
    const Answer& answer = first.answers.at(request.id);
    request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    request.sampling.logprobs = 1;
    request.sampling.prompt_logprobs = -1;
    const Answers expected = run_drafted(cold, {request}).answers;
    const Answers found = run_drafted(drafting, {request}).answers;
    expect_same_answers({request}, found, expected);
    num_cached += std::max(0, found.at(request.id).last.cached_tokens - prompt_size);
  }
  EXPECT_GT(num_cached, 30) << "tokens that were generated with drafts";
}

TEST(Speculation, ACancelledRequestGivesUpItsBlocks) {
  Engine plain(open_model(""), drafted_run_options());
  const std::vector<Request> requests = varied_requests(plain, 8, 600);
  const Answers expected = run_drafted(plain, requests).answers;
  EngineOptions options = with_ngrams(drafted_run_options());
  for (const int32_t steps_ahead : {0, 1}) {
    options.steps_ahead = steps_ahead;
    Engine drafting(open_model(""), options);
    for (const Request& request : requests)
      drafting.submit(request);
    Answers answers;
    for (int i = 0; i < 4; ++i)
      answers.step(drafting);
    drafting.cancel(requests[1].id);
    answers.run(drafting);
    EXPECT_EQ(drafting.scheduler().blocks().num_live(), 0);
    for (const Request& request : requests) {
      const std::vector<TokenId>& all = expected.at(request.id).tokens;
      const std::vector<TokenId>& found = answers.at(request.id).tokens;
      ASSERT_LE(found.size(), all.size());
      EXPECT_TRUE(std::equal(found.begin(), found.end(), all.begin()));
    }
  }
}

// A draft's penalties depend on the drafts before it, and so do the tokens that a grammar allows behind it.
TEST(Speculation, NotWithPenaltiesNorWithAGrammar) {
  const auto plain = test::make_tiny_engine();
  const auto drafting = test::make_tiny_engine(with_ngrams(test::tiny_engine_options()));
  Request repetition = test::greedy_request("repetition", test::kTinyPrompt, 40);
  repetition.sampling.repetition_penalty = 1.1f;
  Request presence = test::greedy_request("presence", test::kTinyPrompt, 40);
  presence.sampling.presence_penalty = 0.5f;
  Request frequency = test::greedy_request("frequency", test::kTinyPrompt, 40);
  frequency.sampling.frequency_penalty = 0.5f;
  const Request grammar = test::constrained_request("grammar", test::kTinyPrompt,
                                                    test::grammar_for(*drafting, test::record_grammar()), 3);
  const std::vector<Request> requests{repetition, presence, frequency, grammar};
  const DraftedRun found = run_drafted(*drafting, requests);
  EXPECT_EQ(found.drafted.draft_tokens, 0);
  expect_same_answers(requests, found.answers, run_drafted(*plain, requests).answers);
  const DraftedRun control = run_drafted(*drafting, {test::greedy_request("control", test::kTinyPrompt, 40)});
  EXPECT_GT(control.drafted.draft_tokens, 0);
}

// Without earlier tokens there is nothing to draft from; the last token needs no draft behind it.
TEST(Speculation, AtTheEndOfTheContext) {
  EngineOptions options = drafted_run_options();
  options.max_model_len = 50;
  Engine plain(open_model(""), options);
  Engine drafting(open_model(""), with_ngrams(options, kMostDraftTokens));
  std::vector<Request> requests;
  for (int32_t length = 1; length < 50; ++length) {
    std::vector<TokenId> prompt(static_cast<size_t>(length), 65);
    requests.push_back(test::greedy_request(std::to_string(length), prompt, 1000));
  }
  const DraftedRun found = run_drafted(drafting, requests);
  expect_same_answers(requests, found.answers, run_drafted(plain, requests).answers);
  EXPECT_GT(found.drafted.accepted_tokens, 0);
}

}  // namespace
}  // namespace minfer
