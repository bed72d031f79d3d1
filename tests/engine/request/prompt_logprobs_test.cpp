// Logprobs of a request's own prompt equal those from the evaluator's logits, whatever runs beside it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "engine/evaluator.h"
#include "engine/request/sampling_state.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/last_steps.h"
#include "tests/support/models/token_texts.h"

namespace minfer {
namespace {

using test::Answers;

EngineOptions scoring_options() {
  EngineOptions options;
  options.device = DeviceChoice::cpu;
  options.max_model_len = 400;
  options.max_num_seqs = 8;
  options.num_blocks = 200;
  options.threads = 1;
  return options;
}

Request scoring_request(const std::string& id, std::vector<TokenId> prompt, int32_t num_top) {
  Request request = test::greedy_request(id, std::move(prompt), 3);
  request.sampling.prompt_logprobs = num_top;
  return request;
}

/// Log-softmax of a row in double.
std::vector<double> log_softmax(std::span<const float> logits) {
  const auto max = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits)
    sum += std::exp(static_cast<double>(logit) - max);
  std::vector<double> logprobs(logits.begin(), logits.end());
  for (double& logprob : logprobs)
    logprob -= max + std::log(sum);
  return logprobs;
}

/// Expects `score` to be for `token`, with its logprob and the most likely alternatives from `expected`.
void expect_score(const SampledToken& score, TokenId token, const std::vector<double>& expected,
                  size_t num_top) {
  ASSERT_EQ(score.token, token);
  EXPECT_NEAR(score.logprob, expected[static_cast<size_t>(token)], 1e-5);
  ASSERT_EQ(score.top.size(), num_top);
  if (num_top > 0) {
    EXPECT_EQ(score.top[0].token, std::ranges::max_element(expected) - expected.begin());
  }
  for (const TokenLogprob& each : score.top)
    EXPECT_NEAR(each.logprob, expected[static_cast<size_t>(each.token)], 1e-5);
}

/// Log-softmax of the evaluator's logits after each token of `prompt`.
std::vector<std::vector<double>> evaluated(const std::vector<TokenId>& prompt) {
  const auto model = open_model("");
  const auto vocab = static_cast<size_t>(model->config().vocab_size);
  std::vector<std::vector<double>> logprobs;
  Evaluator evaluator(*model, scoring_options());
  evaluator.run(prompt, 0, [&](int32_t, std::span<const float> logits) {
    for (size_t i = 0; i < logits.size() / vocab; ++i)
      logprobs.push_back(log_softmax(logits.subspan(i * vocab, vocab)));
  });
  return logprobs;
}

/// Expects the scores of `prompt` that follow from the evaluator's logits.
void expect_scores(const std::vector<SampledToken>& scores, const std::vector<TokenId>& prompt,
                   const std::vector<std::vector<double>>& logprobs, size_t num_top) {
  ASSERT_EQ(scores.size(), prompt.size() - 1);
  ASSERT_EQ(logprobs.size(), prompt.size());
  for (size_t position = 0; position + 1 < prompt.size(); ++position) {
    SCOPED_TRACE(position);
    expect_score(scores[position], prompt[position + 1], logprobs[position], num_top);
  }
}

Answers run(const EngineOptions& options, const std::vector<Request>& requests,
            int64_t* num_preempted = nullptr) {
  Engine engine(open_model(""), options);
  for (const Request& request : requests)
    engine.submit(request);
  Answers answers;
  while (engine.has_work()) {
    answers.step(engine);
    if (num_preempted == nullptr) continue;
    for (const StepRecord& record : test::last_steps(engine.recorder(), 1))
      *num_preempted += record.batch.preempted;
  }
  EXPECT_EQ(engine.scheduler().blocks().num_live(), 0);
  return answers;
}

TEST(PromptLogprobsTest, AreThoseOfTheEvaluatorsLogits) {
  for (const int32_t length : {1, 2, 63, 64, 65, 66, 200}) {
    const std::vector<TokenId> prompt = test::random_tokens(length, 1, 250);
    const Answers answers = run(scoring_options(), {scoring_request("a", prompt, 3)});
    expect_scores(answers.at("a").prompt_logprobs, prompt, evaluated(prompt), 3);
  }
}

/// Some want scores and some do not; some share their prompt.
std::vector<Request> mixed_requests() {
  const std::vector<TokenId> shared = test::random_tokens(150, 2, 250);
  std::vector<Request> requests;
  for (int32_t i = 0; i < 10; ++i) {
    std::vector<TokenId> prompt = test::random_tokens(20 + 13 * i, static_cast<uint32_t>(i), 250);
    if (i % 3 == 0) prompt = shared;
    Request request = test::greedy_request(std::to_string(i), std::move(prompt), 30);
    if (i % 2 == 0) request.sampling.prompt_logprobs = i % 4;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// A request, and its results when it runs alone.
struct Expected {
  Request request;
  std::vector<TokenId> tokens;
  std::vector<std::vector<double>> logprobs;  ///< of its prompt's positions, if it wants scores
};

std::vector<Expected> alone(const std::vector<Request>& requests) {
  std::vector<Expected> all;
  for (const Request& request : requests) {
    Request unscored = request;
    unscored.sampling.prompt_logprobs = -1;
    Engine engine(open_model(""), scoring_options());
    Expected expected{request, test::answer_of(engine, unscored).tokens, {}};
    if (request.sampling.prompt_logprobs >= 0) expected.logprobs = evaluated(request.prompt);
    all.push_back(std::move(expected));
  }
  return all;
}

void expect_right(const Answers& answers, const std::vector<Expected>& all, const char* what) {
  SCOPED_TRACE(what);
  for (const Expected& expected : all) {
    const Request& request = expected.request;
    const test::Answer& answer = answers.at(request.id);
    EXPECT_EQ(answer.tokens, expected.tokens) << request.id;
    const int32_t num_top = request.sampling.prompt_logprobs;
    if (num_top < 0) {
      EXPECT_TRUE(answer.prompt_logprobs.empty()) << request.id;
    } else {
      expect_scores(answer.prompt_logprobs, request.prompt, expected.logprobs, static_cast<size_t>(num_top));
    }
  }
}

TEST(PromptLogprobsTest, DoNotDependOnWhatRunsBesideThem) {
  const std::vector<Request> requests = mixed_requests();
  const std::vector<Expected> expected = alone(requests);
  expect_right(run(scoring_options(), requests), expected, "a batch");

  EngineOptions chunked = scoring_options();
  chunked.max_num_batched_tokens = 17;
  expect_right(run(chunked, requests), expected, "small chunks");

  EngineOptions whole = scoring_options();
  whole.enable_chunked_prefill = false;
  expect_right(run(whole, requests), expected, "no chunks");

  EngineOptions ahead = scoring_options();
  ahead.steps_ahead = 1;
  expect_right(run(ahead, requests), expected, "a step ahead");

  EngineOptions tight = scoring_options();
  tight.num_blocks = 26;
  int64_t num_preempted = 0;
  expect_right(run(tight, requests, &num_preempted), expected, "preemption");
  EXPECT_GT(num_preempted, 0);
}

/// How often the newest step ran the op.
int64_t num_runs(Engine& engine, std::string_view op) {
  const StepRecord record = test::last_steps(engine.recorder(), 1).front();
  return std::ranges::count_if(record.stamps.ops, [&](const StepStamps::Stamp& stamp) {
    return engine.ops()[static_cast<size_t>(stamp.op)].name == op;
  });
}

TEST(PromptLogprobsTest, AWholeChunkIsScoredInOneStepWhoseHeadWorksInSlices) {
  const std::vector<TokenId> prompt = test::random_tokens(300, 5, 250);
  Request request = scoring_request("a", prompt, 2);
  request.sampling.max_tokens = 1;
  Engine engine(open_model(""), scoring_options());
  engine.submit(request);
  Answers answers;
  answers.step(engine);
  EXPECT_TRUE(answers.at("a").finished()) << "300 tokens fit into a step of 2,048";
  // Eight sequences and 64 more rows at a time.
  EXPECT_EQ(num_runs(engine, "lm_head"), 5);
  EXPECT_EQ(num_runs(engine, "sample"), 5);
  expect_scores(answers.at("a").prompt_logprobs, prompt, evaluated(prompt), 2);
}

TEST(PromptLogprobsTest, TakeNothingFromThePrefixCacheButLeaveItTheirBlocks) {
  Engine engine(open_model(""), scoring_options());
  const std::vector<TokenId> prompt = test::random_tokens(100, 3, 250);
  EXPECT_EQ(test::answer_of(engine, test::greedy_request("a", prompt, 2)).last.cached_tokens, 0);
  EXPECT_EQ(test::answer_of(engine, scoring_request("b", prompt, 0)).last.cached_tokens, 0);
  EXPECT_EQ(test::answer_of(engine, test::greedy_request("c", prompt, 2)).last.cached_tokens, 96);
  EXPECT_EQ(
      test::answer_of(engine, scoring_request("d", test::random_tokens(50, 4, 250), 0)).last.cached_tokens,
      0);
  EXPECT_EQ(test::answer_of(engine, test::greedy_request("e", test::random_tokens(50, 4, 250), 2))
                .last.cached_tokens,
            48);
}

// A prompt as long as the context: nothing is drawn behind it, so it needs no place for a token.
TEST(PromptLogprobsTest, APromptIsScoredAlone) {
  for (const int32_t steps_ahead : {0, 1}) {
    EngineOptions options = scoring_options();
    options.steps_ahead = steps_ahead;
    options.max_num_batched_tokens = 130;
    for (const int32_t length : {1, 2, 131, 132, 400}) {
      const std::vector<TokenId> prompt = test::random_tokens(length, 1, 250);
      Request request = scoring_request("a", prompt, 1);
      request.sampling.max_tokens = 0;
      const Answers answers = run(options, {request, scoring_request("b", {1, 2}, 1)});
      EXPECT_EQ(answers.at("a").last.finish, FinishReason::length);
      EXPECT_TRUE(answers.at("a").tokens.empty());
      expect_scores(answers.at("a").prompt_logprobs, prompt, evaluated(prompt), 1);
    }
    Request unscored = test::greedy_request("a", {1, 2, 3}, 0);
    EXPECT_EQ(run(options, {unscored}).at("a").last.finish, FinishReason::length);
    unscored.prompt.assign(401, 1);
    EXPECT_EQ(run(options, {unscored}).at("a").last.finish, FinishReason::refused);
  }
}

TEST(PromptLogprobsTest, ATokenThatCannotFollowHasNone) {
  const std::vector<TokenId> prompt{1, 2};
  const GivenScores scores(prompt, 5, 0);
  EXPECT_EQ(scores.row(5).biases[0].token, 2);
  SampledToken scored{7, -0.5f, {}};  // the draw of a row whose logit of token 2 is -inf
  scores.correct(5, scored);
  EXPECT_EQ(scored.token, 2);
  EXPECT_EQ(scored.logprob, -std::numeric_limits<float>::infinity());
}

TEST(PromptLogprobsTest, AreRangeChecked) {
  Engine engine(open_model(""), scoring_options());
  EXPECT_THROW(engine.submit(scoring_request("a", {1, 2}, 21)), Error);
  EXPECT_THROW(engine.submit(scoring_request("a", {1, 2}, -2)), Error);
}

}  // namespace
}  // namespace minfer
