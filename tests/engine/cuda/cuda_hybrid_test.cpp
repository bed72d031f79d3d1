// Models of gated delta nets and short convolutions on CUDA: states in slots, all kinds of steps, graphs, against the CPU and themselves.
#include <algorithm>
#include <fstream>
#include <map>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/decoder/memory/recurrent_state_pool.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/drafted_run.h"
#include "tests/support/engine/served_model.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

/// Heads of 128 in the delta nets, whose prompts are computed in chunks.
const std::string kAlignedHybrid = "synthetic:tiny-hybrid:bf16";
/// Heads of 12, short convolutions, Mamba-2, and Kimi delta attention beside latent attention.
const std::vector<std::string> kHybrids{"qwen3next",
                                        "qwen35",
                                        "qwen35moe",
                                        "lfm2",
                                        "lfm2moe",
                                        "granite-hybrid",
                                        "granite-hybrid-experts",
                                        "nemotron-h",
                                        "nemotron-h-experts",
                                        "kimi-linear",
                                        "kimi-linear-q-rank"};
constexpr test::TokenPattern kHybridPattern{.first = 3, .end = 250};

std::vector<float> hybrid_logits(const std::string& model, std::span<const TokenId> tokens,
                                 DeviceChoice device, DType dtype, int32_t chunk = 0) {
  EngineOptions options = test::served_options(dtype);
  options.device = device;
  return test::logits_of(model, tokens, options, chunk);
}

class CudaHybrid : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// bf16 only for a model without experts, because rounding would change the choice among near equals. For qwen35, weights rounded to bf16
/// alone leave 1.5e-2 on the CPU.
TEST_F(CudaHybrid, LogitsAreThoseOfTheCpu) {
  for (const std::string& model :
       {kAlignedHybrid, test_model("qwen3next"), test_model("qwen35"), test_model("lfm2"),
        test_model("granite-hybrid"), test_model("nemotron-h"), test_model("kimi-linear-q-rank")}) {
    const std::vector<TokenId> tokens = kHybridPattern.tokens(5, 200);
    const std::vector<float> expected = hybrid_logits(model, tokens, DeviceChoice::cpu, DType::f32);
    const double in_f32 = test::nmse(hybrid_logits(model, tokens, DeviceChoice::cuda, DType::f32), expected);
    const double in_bf16 =
        test::nmse(hybrid_logits(model, tokens, DeviceChoice::cuda, DType::bf16), expected);
    fmt::print("{}: NMSE {:.2e} in f32, {:.2e} in bf16\n", model, in_f32, in_bf16);
    EXPECT_LT(in_f32, 1e-7) << model;
    if (model == test_model("qwen35")) {
      EXPECT_LT(in_bf16, 2e-2) << model;
    }
  }
}

/// One token after the other in graphs, behind prompts that transformers continued.
TEST_F(CudaHybrid, GreedyContinuationsAreThoseOfTheReference) {
  std::ifstream file(source_path("tests/golden/golden.json"));
  ASSERT_TRUE(file);
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const nlohmann::json& facts : golden.at("models")) {
    const auto model = facts.at("name").get<std::string>();
    if (std::ranges::count(kHybrids, model) == 0) continue;
    const auto expected = facts.at("greedy").get<std::vector<TokenId>>();
    const std::vector<TokenId> prompt =
        test::read_logits(source_path("tests/golden/" + model + ".logits")).tokens;
    EngineOptions options = test::served_options(DType::f32);
    options.max_model_len = 128;
    Engine engine(open_model(test_model(model)), options);
    EXPECT_EQ(
        test::answer_of(engine, test::greedy_request("a", prompt, static_cast<int32_t>(expected.size())))
            .tokens,
        expected)
        << model;
  }
}

/// Prompts in pieces: states are passed from step to step.
TEST_F(CudaHybrid, LogitsDoNotDependOnThePieces) {
  for (const std::string& model :
       {kAlignedHybrid, test_model("qwen35moe"), test_model("lfm2moe"), test_model("nemotron-h-experts"),
        test_model("kimi-linear"), test_model("kimi-linear-q-rank")}) {
    const std::vector<TokenId> tokens = kHybridPattern.tokens(9, 64);
    const std::vector<float> whole = hybrid_logits(model, tokens, DeviceChoice::cuda, DType::f32);
    const std::vector<double> expected(whole.begin(), whole.end());
    for (const int32_t chunk : {1, 2, 7, 33})
      EXPECT_LT(test::nmse(hybrid_logits(model, tokens, DeviceChoice::cuda, DType::f32, chunk), expected),
                1e-7)
          << model << ", pieces of " << chunk;
  }
}

/// States of up to seven sequences, beside prompts and padding.
TEST_F(CudaHybrid, GraphsGiveWhatEagerStepsGive) {
  for (const std::string& name : kHybrids)
    test::expect_graphs_as_eager(test_model(name), test::served_options(DType::f32),
                                 kHybridPattern.staggered_requests(7));
}

/// Batches of every size, most of which a graph pads.
TEST_F(CudaHybrid, GraphsEqualEagerStepsForEveryBatchSize) {
  constexpr int32_t kMost = 20;
  for (int32_t batch = 1; batch <= kMost; ++batch) {
    std::vector<Request> requests;
    for (int32_t i = 0; i < batch; ++i)
      requests.push_back(kHybridPattern.request(i, 3, 6));
    EngineOptions options = test::served_options(DType::f32);
    options.max_num_seqs = kMost;
    const test::ServedModel graphs = test::serve(test_model("qwen35"), options, requests);
    options.cuda_graphs = false;
    test::expect_close_answers(graphs.answers, test::serve(test_model("qwen35"), options, requests).answers,
                               fmt::format("batch of {}", batch));
  }
}

/// Clients leave while others take their slots: each answer equals the answer of the request alone, as far as it came.
TEST_F(CudaHybrid, SlotsThatChangeHandsChangeNothing) {
  std::vector<Request> requests;
  std::map<std::string, test::Answer> expected;
  for (int32_t i = 0; i < 14; ++i) {
    requests.push_back(kHybridPattern.request(i, 1 + 7 * (i % 6), 5 + i));
    expected[requests.back().id] =
        test::serve(test_model("qwen35"), test::served_options(DType::f32), {requests.back()})
            .answers.at(requests.back().id);
  }
  EngineOptions options = test::served_options(DType::f32);
  options.max_num_seqs = 4;
  options.max_num_batched_tokens = 19;
  Engine engine(open_model(test_model("qwen35")), options);
  for (const Request& request : requests)
    engine.submit(request);
  test::Answers answers;
  for (int32_t step = 0; engine.has_work(); ++step) {
    if (step % 5 == 2) engine.cancel(std::to_string(step / 5));
    answers.step(engine);
  }
  size_t num_whole = 0;
  for (const auto& [id, answer] : answers.all()) {
    const std::vector<TokenId>& whole = expected.at(id).tokens;
    ASSERT_LE(answer.tokens.size(), whole.size());
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin())) << id;
    num_whole += answer.tokens.size() == whole.size();
  }
  EXPECT_GT(num_whole, 5u);
  EXPECT_LT(num_whole, 14u) << "nothing was cancelled";
}

/// One token after the other, in batches of several sizes: the logits of generated tokens are the same as those of a prompt of the same
/// tokens. In bf16 some tokens get other experts.
TEST_F(CudaHybrid, DecodingGivesWhatPromptsGive) {
  for (const auto& [dtype, most] : {std::pair{DType::f32, 1e-3}, std::pair{DType::bf16, 0.3}}) {
    const EngineOptions options = test::served_options(dtype);
    const std::vector<Request> requests = kHybridPattern.staggered_requests(7);
    const test::ServedModel served = test::serve(kAlignedHybrid, options, requests);
    EXPECT_GT(served.num_graphs, 20);
    const double root = test::logprobs_from_prompts(kAlignedHybrid, options, requests, served.answers);
    fmt::print("{}: logprobs {:.1e} apart (root mean square)\n", name(dtype), root);
    EXPECT_LT(root, most) << name(dtype);
  }
}

/// Turns of several conversations at once: a step that reads copies, a step that writes them, and graphs in between, with a step ahead.
TEST_F(CudaHybrid, PrefixesChangeNoAnswer) {
  for (const std::string& model : {kAlignedHybrid, test_model("qwen3next"), test_model("qwen35"),
                                   test_model("lfm2"), test_model("kimi-linear")}) {
    for (const int32_t num_copies : {2, 16}) {
      EngineOptions options = test::served_options(DType::f32);
      options.num_state_copies = num_copies;
      options.state_copy_rule = {.interval = 96, .reopened_tokens = 4, .least_tokens = 16};
      EngineOptions without = test::served_options(DType::f32);
      without.enable_prefix_caching = false;
      Engine engine(open_model(model), options);
      std::vector<std::vector<TokenId>> said;
      for (int32_t i = 0; i < 3; ++i)
        said.push_back(kHybridPattern.tokens(5 * i, 40 + 3 * i));
      int32_t num_hits = 0;
      for (int32_t turn = 0; turn < 4; ++turn) {
        std::vector<Request> requests;
        for (int32_t i = 0; i < 3; ++i) {
          requests.push_back(
              test::greedy_request(fmt::format("{}.{}", turn, i), said[static_cast<size_t>(i)], 11));
          requests.back().sampling.logprobs = 0;
          engine.submit(requests.back());
        }
        test::Answers answers;
        answers.run(engine);
        test::expect_close_answers(answers, test::serve(model, without, requests).answers,
                                   fmt::format("{}, turn {}", model, turn));
        for (int32_t i = 0; i < 3; ++i) {
          const test::Answer& answer = answers.at(requests[static_cast<size_t>(i)].id);
          num_hits += answer.last.cached_tokens > 0;
          std::vector<TokenId>& tokens = said[static_cast<size_t>(i)];
          tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
          const std::vector<TokenId> more = kHybridPattern.tokens(90 + turn + i, 17);
          tokens.insert(tokens.end(), more.begin(), more.end());
        }
      }
      if (num_copies == 16) {
        EXPECT_EQ(num_hits, 9) << model;
      }
    }
  }
}

/// The state before drafts is copied, and restored if some were rejected; with a step ahead and without, in graphs and between them.
TEST_F(CudaHybrid, DraftsChangeNoAnswer) {
  const std::vector<Request> requests = test::requests_of_few_words(12);
  for (const std::string& model :
       {kAlignedHybrid, test_model("qwen3next"), test_model("qwen35"), test_model("lfm2")}) {
    EngineOptions options = test::drafted_run_options();
    options.device = DeviceChoice::cuda;
    options.dtype = DType::f32;
    options.enable_prefix_caching = false;
    Engine plain(open_model(model), options);
    const test::Answers expected = test::run_drafted(plain, requests).answers;
    options.enable_prefix_caching = true;
    for (const int32_t num_copies : {2, 16}) {
      for (const int32_t steps_ahead : {0, 1}) {
        EngineOptions drafts = test::with_ngrams(options);
        drafts.num_state_copies = num_copies;
        drafts.steps_ahead = steps_ahead;
        Engine drafting(open_model(model), drafts);
        const test::DraftedRun found = test::run_drafted(drafting, requests);
        test::expect_close_answers(
            found.answers, expected,
            fmt::format("{}, {} copies, {} steps ahead", model, num_copies, steps_ahead));
        EXPECT_GT(found.drafted.accepted_tokens, 10) << model;
        EXPECT_GT(found.drafted.draft_tokens - found.drafted.accepted_tokens, 10)
            << model << ": none were rejected";
        drafting.scheduler().state_copies().check();
        EXPECT_EQ(drafting.scheduler().state_copies().num_writing(), 0);
      }
    }
  }
}

TEST_F(CudaHybrid, StatesAreReportedAndGivenBack) {
  const auto source = open_model(kAlignedHybrid);
  const auto slot_bytes = static_cast<int64_t>(RecurrentStatePool::slot_bytes(source->config()));
  const auto of_states = [] {
    const std::unique_ptr<Backend> backend = make_cuda_backend();
    int64_t bytes = 0;
    for (const MemoryPart& part : backend->memory_use().parts)
      if (part.what == "states of sequences") bytes += part.bytes;
    return bytes;
  };
  const int64_t before = of_states();
  {
    const Engine engine(open_model(kAlignedHybrid), test::served_options(DType::bf16));
    EXPECT_EQ(of_states() - before, (8 + *engine.options().num_state_copies) * slot_bytes);
  }
  EXPECT_EQ(of_states(), before);
  const Engine plain(open_model(""), test::served_options(DType::bf16));
  EXPECT_EQ(of_states(), before) << "of a model without states";
}

}  // namespace
}  // namespace minfer
