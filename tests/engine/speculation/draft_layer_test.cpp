// Drafts by a model's own layer for further tokens: its logits, and that the engine's steps make the same drafts in any order of steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "models/decoder/config/eagle_head.h"
#include "tests/support/engine/draft_layer_run.h"
#include "tests/support/engine/drafted_run.h"

namespace minfer {
namespace {

using test::Answers;
using test::drafted_run_options;
using test::DraftedRun;
using test::expect_same_answers;
using test::run_drafted;

EngineOptions with_layer(EngineOptions options) {
  options.speculation.method = SpeculationMethod::mtp;
  options.speculation.num_tokens = 3;
  options.speculation.adaptive = false;
  options.kv_cache_bytes = int64_t{64} << 20;  // room for copies of states
  options.num_blocks = 0;
  return options;
}

std::vector<Request> requests_of_any_tokens(size_t count, uint32_t first_seed) {
  std::vector<Request> requests;
  for (uint32_t seed = first_seed; requests.size() < count; ++seed) {
    std::mt19937 random(seed);
    std::vector<TokenId> prompt(3 + random() % 60);
    for (TokenId& token : prompt)
      token = static_cast<TokenId>(3 + random() % 280);
    Request request =
        test::greedy_request(std::to_string(seed), prompt, static_cast<int32_t>(30 + random() % 60));
    request.sampling.temperature = seed % 2 == 0 ? 0.0f : 0.7f;
    request.sampling.seed = seed;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = seed % 3 == 0 ? 2 : -1;
    if (seed % 4 == 3) request.sampling.repetition_penalty = 1.3f;
    requests.push_back(std::move(request));
  }
  return requests;
}

class DraftLayers : public testing::TestWithParam<const char*> {
 protected:
  static std::unique_ptr<ModelSource> model() { return test::draft_layer_model(GetParam()); }
  static std::unique_ptr<ModelSource> plain_model() { return test::draft_layer_model(GetParam(), false); }
};

TEST_P(DraftLayers, LogitsAgreeWithTransformers) {
  for (const int32_t piece : {1, 3, 19, 128}) {
    const double error = test::draft_error(GetParam(), {.device = DeviceChoice::cpu, .threads = 1}, piece);
    std::printf("%s, pieces of %d: NMSE %.2e (limit 1e-08)\n", GetParam(), piece, error);
    EXPECT_LE(error, 1e-8) << "pieces of " << piece;
  }
}

TEST_P(DraftLayers, TheModelsLogitsAreTheSameWithAndWithoutIt) {
  const std::vector<TokenId> tokens =
      test::read_logits(test::golden_file(test::target_of(GetParam()), "logits")).tokens;
  const auto first_answer = [&](bool drafts) {
    EngineOptions options = drafted_run_options();
    if (drafts) options = with_layer(options);
    Engine engine(test::draft_layer_model(GetParam(), drafts), options);
    Request request = test::greedy_request("a", tokens, 30);
    request.sampling.prompt_logprobs = 3;
    request.sampling.logprobs = 3;
    request.sampling.ignore_eos = true;
    return std::pair(run_drafted(engine, {request}), request);
  };
  const auto [with, request] = first_answer(true);
  expect_same_answers({request}, with.answers, first_answer(false).first.answers);
  EXPECT_GT(with.drafted.draft_tokens, 0);
}

TEST_P(DraftLayers, ChangeNoOutput) {
  Engine plain(plain_model(), drafted_run_options());
  const std::vector<Request> requests = requests_of_any_tokens(10, 100);
  const Answers expected = run_drafted(plain, requests).answers;
  for (const bool adaptive : {false, true}) {
    for (const int32_t steps_ahead : {0, 1}) {
      EngineOptions options = with_layer(drafted_run_options());
      options.speculation.adaptive = adaptive;
      options.steps_ahead = steps_ahead;
      Engine drafting(model(), options);
      const DraftedRun found = run_drafted(drafting, requests);
      expect_same_answers(requests, found.answers, expected);
      if (adaptive) continue;
      EXPECT_GT(found.drafted.draft_tokens, 0);
    }
  }
}

TEST_P(DraftLayers, ChangeNoOutputBehindPreemptions) {
  if (model()->config().is_recurrent()) GTEST_SKIP() << "too few blocks leave no copies of states";
  Engine plain(plain_model(), drafted_run_options());
  const std::vector<Request> requests = requests_of_any_tokens(10, 400);
  EngineOptions options = with_layer(drafted_run_options());
  options.max_num_batched_tokens = 13;
  options.num_blocks = 44;
  options.kv_cache_bytes = 0;
  options.max_model_len = 160;
  Engine drafting(model(), options);
  const DraftedRun found = run_drafted(drafting, requests);
  expect_same_answers(requests, found.answers, run_drafted(plain, requests).answers);
  EXPECT_GT(found.num_preempted, 0);
  EXPECT_GT(found.drafted.draft_tokens, 0);
}

/// With a chance of acceptance for any draft the output is made of drafts, so equal outputs are equal drafts: alone and beside others,
/// with prompts whole and in pieces.
TEST_P(DraftLayers, DraftsDependOnTheSequenceAlone) {
  EngineOptions options = with_layer(drafted_run_options());
  options.speculation.synthetic_acceptance = 0.7;
  options.enable_prefix_caching = model()->config().is_recurrent();  // whose prefixes have their states
  const std::vector<Request> requests = requests_of_any_tokens(8, 200);
  Answers alone;
  for (const Request& request : requests) {
    Engine engine(model(), options);
    engine.submit(request);
    while (engine.has_work())
      alone.step(engine);
  }
  Engine together(model(), options);
  const DraftedRun found = run_drafted(together, requests);
  expect_same_answers(requests, found.answers, alone);
  EXPECT_GT(found.drafted.accepted_tokens, found.drafted.draft_tokens / 4);
  options.max_num_batched_tokens = 40;  // room for the drafts of all
  Engine in_pieces(model(), options);
  expect_same_answers(requests, run_drafted(in_pieces, requests).answers, alone);
}

/// Behind a cached prefix only the hidden state in front of it is another one.
TEST_P(DraftLayers, PrefixesChangeNoOutput) {
  EngineOptions options = with_layer(drafted_run_options());
  const std::vector<Request> requests = requests_of_any_tokens(6, 300);
  Engine plain(plain_model(), drafted_run_options());
  const Answers expected = run_drafted(plain, requests).answers;
  Engine drafting(model(), options);
  for (int turn = 0; turn < 3; ++turn)
    expect_same_answers(requests, run_drafted(drafting, requests).answers, expected);
}

INSTANTIATE_TEST_SUITE_P(Models, DraftLayers, testing::ValuesIn(test::kDraftLayerModels),
                         [](const auto& model) {
                           std::string label = model.param;
                           std::ranges::replace(label, '-', '_');
                           return label;
                         });

/// A token that the request's bias makes certain is drafted, and so accepted, if it is one of the head's.
TEST(EagleHead, DraftsItsOwnTokensAlone) {
  const std::shared_ptr<const EagleHead> head = test::draft_layer_model("eagle3-mistral")->config().eagle;
  for (const TokenId token : {3, 100, 101, 102}) {
    const bool is_drafted = head->columns[static_cast<size_t>(token)] >= 0.0f;
    Request request = test::greedy_request("a", {5, 6, 7, 8}, 20);
    request.sampling.logit_bias = {{token, 100.0f}};
    Engine engine(test::draft_layer_model("eagle3-mistral"), with_layer(drafted_run_options()));
    const DraftedRun run = run_drafted(engine, {request});
    EXPECT_EQ(run.answers.at("a").tokens, std::vector<TokenId>(20, token));
    EXPECT_GT(run.drafted.draft_tokens, 0);
    EXPECT_EQ(run.drafted.accepted_tokens, is_drafted ? run.drafted.draft_tokens : 0) << token;
  }
}

TEST(DraftLayer, IsRefusedWhereThereIsNone) {
  EngineOptions options = with_layer(drafted_run_options());
  const auto message = [&](std::unique_ptr<ModelSource> source) -> std::string {
    try {
      Engine engine(std::move(source), options);
      return "was taken";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(message(open_model("", true)), testing::HasSubstr("has no layer for further tokens"));
  EXPECT_THAT(message(test::draft_layer_model("glm4moe-mtp", false)),
              testing::HasSubstr("has no layer for further tokens"))
      << "its tensors were not loaded";
  options.tensor_parallel_size = 2;
  EXPECT_THAT(message(test::draft_layer_model("glm4moe-mtp")),
              testing::HasSubstr("works with one rank only"));
}

TEST(DraftLayer, IsTurnedOffIfNobodyAskedForItAndThereAreNoCopiesOfStates) {
  EngineOptions options = with_layer(drafted_run_options());
  options.enable_prefix_caching = false;
  EXPECT_THROW(Engine(test::draft_layer_model("qwen35-mtp"), options), Error);
  options.speculation.is_asked_for = false;
  const Engine engine(test::draft_layer_model("qwen35-mtp"), options);
  EXPECT_EQ(engine.options().speculation.method, SpeculationMethod::off);
}

}  // namespace
}  // namespace minfer
