// Whole models on CUDA against logits that other engines computed, and against the CPU backend.

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/evaluator.h"
#include "tests/support/cuda_device.h"
#include "tests/support/engine_run.h"
#include "tests/support/fixtures.h"

namespace minfer {
namespace {

std::vector<float> logits_of(const std::string& model, std::span<const TokenId> tokens, DeviceChoice device) {
  const std::unique_ptr<ModelSource> source = open_model(model);
  EngineOptions options;
  options.device = device;
  options.num_blocks = 256;
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(tokens, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

std::vector<TokenId> greedy(const std::string& model, const std::vector<TokenId>& prompt, int32_t count) {
  EngineOptions options;
  options.device = DeviceChoice::cuda;
  options.max_num_seqs = 1;
  options.num_blocks = 64;
  Engine engine(open_model(model), options);
  return test::answer_of(engine, test::greedy_request("greedy", prompt, count)).tokens;
}

struct GoldenCase {
  std::string model;
  double max_nmse;
};

class CudaGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(CudaGolden, LogitsAgree) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const auto fixtures = test::fixtures_dir();
  if (!fixtures) GTEST_SKIP() << "no fixtures: set MINFER_FIXTURES";
  const std::filesystem::path base = *fixtures / "golden" / GetParam().model;
  const test::GoldenLogits golden = test::read_logits(base.string() + ".logits");
  const double error =
      test::nmse(logits_of(base.string() + ".gguf", golden.tokens, DeviceChoice::cuda), golden.logits);
  std::printf("%s on CUDA: NMSE %.2e (limit %.1e)\n", GetParam().model.c_str(), error, GetParam().max_nmse);
  EXPECT_LE(error, GetParam().max_nmse);
}

// f32 models run in f32; the others round activations to bf16, which is what remains of their error.
INSTANTIATE_TEST_SUITE_P(Models, CudaGolden,
                         testing::Values(GoldenCase{"llama-f32", 1e-7}, GoldenCase{"qwen3-f32", 1e-7},
                                         GoldenCase{"qwen2-f16", 1e-4}, GoldenCase{"llama-bf16", 1e-4},
                                         GoldenCase{"llama-q8_0", 1e-4}, GoldenCase{"llama-q4_0", 1e-4},
                                         GoldenCase{"llama-q4_k", 1e-4}, GoldenCase{"llama-q5_k", 1e-4},
                                         GoldenCase{"llama-q6_k", 1e-4}),
                         [](const auto& test_case) {
                           std::string label = test_case.param.model;
                           std::ranges::replace(label, '-', '_');
                           return label;
                         });

TEST(CudaGoldenGreedy, F32ContinuationsAreExact) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const auto fixtures = test::fixtures_dir();
  if (!fixtures) GTEST_SKIP() << "no fixtures: set MINFER_FIXTURES";
  const std::map<std::string, std::vector<TokenId>> expected{
      {"llama-f32", {453, 209, 44, 89, 442, 88, 148, 32, 404, 263, 448, 126, 421, 133, 381, 440}},
      {"qwen3-f32", {71, 165, 280, 143, 17, 502, 229, 397, 64, 191, 191, 191, 191, 191, 191, 191}}};
  for (const auto& [model, tokens] : expected) {
    const std::filesystem::path base = *fixtures / "golden" / model;
    const test::GoldenLogits golden = test::read_logits(base.string() + ".logits");
    EXPECT_EQ(greedy(base.string() + ".gguf", golden.tokens, 16), tokens) << model;
  }
}

/// tests/golden: mixtures of experts, scaled rotary tables, biases. Their weights are f16 or f32.
TEST(CudaTransformersGolden, LogitsAgree) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  const std::filesystem::path folder = std::filesystem::path(MINFER_SOURCE_DIR) / "tests" / "golden";
  std::ifstream file(folder / "golden.json");
  ASSERT_TRUE(file) << folder;
  const nlohmann::json golden = nlohmann::json::parse(file);
  for (const nlohmann::json& facts : golden.at("models")) {
    const auto model = facts.at("name").get<std::string>();
    const std::filesystem::path base = folder / model;
    const test::GoldenLogits reference = test::read_logits(base.string() + ".logits");
    const double error = test::nmse(logits_of(base.string() + ".gguf", reference.tokens, DeviceChoice::cuda),
                                    reference.logits);
    std::printf("%s on CUDA: NMSE %.2e\n", model.c_str(), error);
    EXPECT_LE(error, 1e-4) << model;
  }
}

/// How far behind the largest logit a token is, by the CPU backend, in units of the logits' standard
/// deviation.
double gap(std::span<const float> logits, TokenId token) {
  double sum = 0.0, sum_of_squares = 0.0;
  for (const float logit : logits) {
    sum += logit;
    sum_of_squares += double{logit} * logit;
  }
  const double mean = sum / static_cast<double>(logits.size());
  const double deviation = std::sqrt(sum_of_squares / static_cast<double>(logits.size()) - mean * mean);
  return (*std::ranges::max_element(logits) - logits[static_cast<size_t>(token)]) / deviation;
}

TEST(CudaDemoModel, ContinuesAsTheCpuBackendDoes) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int32_t kPrompts = 100, kTokens = 200;
  std::map<DeviceChoice, test::Answers> answers;
  std::vector<std::vector<TokenId>> prompts;
  for (const DeviceChoice device : {DeviceChoice::cpu, DeviceChoice::cuda}) {
    EngineOptions options;
    options.device = device;
    options.max_num_seqs = 50;
    options.num_blocks = 2048;
    Engine engine(open_model(""), options);
    std::ifstream file(MINFER_SOURCE_DIR "/models/demo/eval.jsonl");
    prompts = {engine.tokenizer().encode("Once upon a time"), engine.tokenizer().encode("The garden")};
    for (size_t i = 0; i < prompts.size(); ++i)
      engine.submit(test::greedy_request(std::to_string(i), prompts[i], kTokens));
    for (std::string line; std::getline(file, line) && std::ssize(prompts) < kPrompts;) {
      const nlohmann::json entry = nlohmann::json::parse(line);
      if (entry.at("task") == "recall_long") continue;
      prompts.push_back(engine.tokenizer().encode(entry.at("prompt").get<std::string>(),
                                                  {.add_special = false, .parse_special = true}));
      engine.submit(test::greedy_request(std::to_string(prompts.size() - 1), prompts.back(), kTokens));
    }
    answers[device].run(engine);
  }
  ASSERT_EQ(std::ssize(prompts), kPrompts);
  int32_t num_equal = 0;
  for (int32_t i = 0; i < kPrompts; ++i) {
    const std::vector<TokenId>& cpu = answers[DeviceChoice::cpu].at(std::to_string(i)).tokens;
    const std::vector<TokenId>& cuda = answers[DeviceChoice::cuda].at(std::to_string(i)).tokens;
    ASSERT_EQ(cpu.size(), static_cast<size_t>(kTokens));
    if (cpu == cuda) {
      ++num_equal;
      continue;
    }
    const auto at = std::ranges::mismatch(cpu, cuda).in1 - cpu.begin();
    std::vector<TokenId> context = prompts[static_cast<size_t>(i)];
    context.insert(context.end(), cpu.begin(), cpu.begin() + at);
    const std::vector<float> logits = logits_of("", context, DeviceChoice::cpu);
    const auto vocab = logits.size() / context.size();
    const double behind = gap(std::span(logits).last(vocab), cuda[static_cast<size_t>(at)]);
    std::printf("prompt %d differs at token %td: CUDA's choice is %.4f standard deviations behind\n", i, at,
                behind);
    EXPECT_LT(behind, 0.05) << "prompt " << i;
  }
  std::printf("%d of %d continuations of %d tokens are equal\n", num_equal, kPrompts, kTokens);
  EXPECT_GE(num_equal, 95);
}

}  // namespace
}  // namespace minfer
