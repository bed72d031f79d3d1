// Whole models against logits from other engines: llama.cpp (the shared fixtures) and Hugging Face
// transformers (tests/golden, made by scripts/golden/make_golden_models.py).

#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "engine/evaluator.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"

namespace minfer {
namespace {

std::vector<float> logits_of(const std::string& model, std::span<const TokenId> tokens, int32_t chunk = 0) {
  const std::unique_ptr<ModelSource> source = open_model(model);
  EngineOptions options;
  options.max_model_len = static_cast<int32_t>(tokens.size());
  Evaluator evaluator(*source, options);
  std::vector<float> logits;
  evaluator.run(tokens, chunk, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

std::vector<TokenId> greedy(const std::string& model, const std::vector<TokenId>& prompt, int32_t count) {
  EngineOptions options;
  options.max_num_seqs = 1;
  options.num_blocks = 64;
  Engine engine(open_model(model), options);
  Request request;
  request.id = "greedy";
  request.prompt = prompt;
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = count;
  request.sampling.ignore_eos = true;
  engine.submit(request);
  std::vector<TokenId> tokens;
  while (engine.has_work()) {
    for (const RequestOutput& output : engine.step())
      tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  }
  return tokens;
}

struct GoldenCase {
  std::string model;
  double max_nmse;
};

void PrintTo(const GoldenCase& golden, std::ostream* out) {
  *out << golden.model;
}

class SharedGolden : public testing::TestWithParam<GoldenCase> {};

TEST_P(SharedGolden, LogitsAgree) {
  const auto fixtures = test::fixtures_dir();
  if (!fixtures) GTEST_SKIP() << "no fixtures: set MINFER_FIXTURES";
  const std::filesystem::path base = *fixtures / "golden" / GetParam().model;
  const test::GoldenLogits golden = test::read_logits(base.string() + ".logits");
  const std::vector<float> logits = logits_of(base.string() + ".gguf", golden.tokens);
  const double error = test::nmse(logits, golden.logits);
  RecordProperty("nmse", std::to_string(error));
  std::printf("%s: NMSE %.2e (limit %.0e)\n", GetParam().model.c_str(), error, GetParam().max_nmse);
  EXPECT_LE(error, GetParam().max_nmse);
  // The check itself must notice a wrong value.
  std::vector<float> spoilt = logits;
  spoilt[7] += 10.0f;
  EXPECT_GT(test::nmse(spoilt, golden.logits), GetParam().max_nmse);
}

INSTANTIATE_TEST_SUITE_P(Models, SharedGolden,
                         testing::Values(GoldenCase{"llama-f32", 1e-8}, GoldenCase{"qwen3-f32", 1e-8},
                                         GoldenCase{"qwen2-f16", 1e-7}, GoldenCase{"llama-bf16", 1e-7},
                                         GoldenCase{"llama-q8_0", 1e-5}, GoldenCase{"llama-q4_0", 1e-5},
                                         GoldenCase{"llama-q4_k", 1e-5}, GoldenCase{"llama-q5_k", 1e-5},
                                         GoldenCase{"llama-q6_k", 1e-5}),
                         [](const auto& test_case) {
                           std::string label = test_case.param.model;
                           std::ranges::replace(label, '-', '_');
                           return label;
                         });

TEST(SharedGoldenGreedy, ContinuationsAreExact) {
  const auto fixtures = test::fixtures_dir();
  if (!fixtures) GTEST_SKIP() << "no fixtures: set MINFER_FIXTURES";
  const std::map<std::string, std::vector<TokenId>> expected{
      {"llama-f32", {453, 209, 44, 89, 442, 88, 148, 32, 404, 263, 448, 126, 421, 133, 381, 440}},
      {"qwen2-f16", {412, 371, 261, 136, 330, 44, 301, 219, 62, 150, 81, 175, 427, 60, 454, 224}},
      {"qwen3-f32", {71, 165, 280, 143, 17, 502, 229, 397, 64, 191, 191, 191, 191, 191, 191, 191}}};
  for (const auto& [model, tokens] : expected) {
    const std::filesystem::path base = *fixtures / "golden" / model;
    const test::GoldenLogits golden = test::read_logits(base.string() + ".logits");
    EXPECT_EQ(greedy(base.string() + ".gguf", golden.tokens, 16), tokens) << model;
  }
}

/// tests/golden/converted: tiny files as llama.cpp's converter writes them. Their keys or rows have a meaning for its own reader or
/// for transformers that the family's usual files do not show.
TEST(ConvertedGolden, LogitsAgree) {
  const std::filesystem::path folder = std::filesystem::path(source_path("")) / "tests/golden/converted";
  int models = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".gguf") continue;
    ++models;
    const std::string model = entry.path().stem().string();
    const test::GoldenLogits reference = test::read_logits((folder / model).string() + ".logits");
    const double error = test::nmse(logits_of(entry.path().string(), reference.tokens), reference.logits);
    std::printf("%s: NMSE %.2e (limit 1e-08)\n", model.c_str(), error);
    EXPECT_LE(error, 1e-8) << model;
  }
  EXPECT_EQ(models, 3);
}

/// tests/golden: architectures that the shared fixtures lack.
TEST(TransformersGolden, LogitsAndGreedyContinuationsAgree) {
  const std::filesystem::path folder = std::filesystem::path(source_path("")) / "tests" / "golden";
  std::ifstream file(folder / "golden.json");
  ASSERT_TRUE(file) << folder;
  const nlohmann::json golden = nlohmann::json::parse(file);
  const auto tolerance = golden.at("nmse_tolerance").get<double>();
  ASSERT_GE(golden.at("models").size(), 36u);
  for (const nlohmann::json& facts : golden.at("models")) {
    const auto model = facts.at("name").get<std::string>();
    const std::filesystem::path base = folder / model;
    const test::GoldenLogits reference = test::read_logits(base.string() + ".logits");
    const double error = test::nmse(logits_of(base.string() + ".gguf", reference.tokens), reference.logits);
    std::printf("%s: NMSE %.2e (limit %.0e)\n", model.c_str(), error, tolerance);
    EXPECT_LE(error, tolerance) << model;
    const auto continuation = facts.at("greedy").get<std::vector<TokenId>>();
    EXPECT_EQ(greedy(base.string() + ".gguf", reference.tokens, static_cast<int32_t>(continuation.size())),
              continuation)
        << model;
  }
}

}  // namespace
}  // namespace minfer
