// Tokens that a file forbids (tokenizer.ggml.suppress_tokens): their logits are -inf, all others are as without.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/engine/served_model.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::ModelParts;
using ::testing::HasSubstr;

constexpr const char* kKey = "tokenizer.ggml.suppress_tokens";

ModelParts capped_model(float cap) {
  ModelParts model = test::tiny_model("llama");
  if (cap > 0.0f) model.keys["llama.final_logit_softcapping"] = cap;
  return model;
}

EngineOptions options_of(DeviceChoice device, int32_t ranks) {
  EngineOptions options = test::tiny_engine_options();
  options.device = device;
  options.dtype = DType::f32;
  options.max_model_len = 48;
  options.tensor_parallel_size = options.threads = ranks;
  return options;
}

std::vector<float> logits_of(const ModelParts& model, const EngineOptions& options, int32_t tokens) {
  const std::vector<std::byte> file = model.build();
  const auto source = open_model_in_memory(file, "model.gguf");
  Evaluator evaluator(*source, options);
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < tokens; ++i)
    prompt.push_back(7 * i % evaluator.vocab_size());
  std::vector<float> logits;
  evaluator.run(prompt, 0, [&](int32_t, std::span<const float> rows) {
    logits.insert(logits.end(), rows.begin(), rows.end());
  });
  return logits;
}

/// The likeliest token behind each of `tokens` prompts' tokens is forbidden, and tokens at both ends of the vocabulary.
void expect_suppressed(DeviceChoice device, int32_t ranks, float cap, int32_t tokens) {
  ModelParts model = capped_model(cap);
  const EngineOptions options = options_of(device, ranks);
  const std::vector<float> plain = logits_of(model, options, tokens);
  const auto vocabulary = static_cast<int32_t>(plain.size()) / tokens;
  std::vector<int32_t> forbidden{0, vocabulary - 1};
  for (int32_t row = 0; row < tokens; ++row) {
    const auto first = plain.begin() + int64_t{row} * vocabulary;
    forbidden.push_back(static_cast<int32_t>(std::max_element(first, first + vocabulary) - first));
  }
  model.keys[kKey] = forbidden;
  const std::vector<float> found = logits_of(model, options, tokens);
  ASSERT_EQ(found.size(), plain.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const bool is_forbidden = std::ranges::count(forbidden, static_cast<int32_t>(i) % vocabulary) > 0;
    const std::string what = fmt::format("logit {}, {} ranks, cap {}, {} tokens", i, ranks, cap, tokens);
    if (is_forbidden) {
      ASSERT_EQ(found[i], -INFINITY) << what;
    } else {  // on a GPU a product with a bias may be another kernel
      ASSERT_NEAR(found[i], plain[i], device == DeviceChoice::cpu ? 0.0 : 1e-4) << what;
    }
  }
}

TEST(SuppressedTokens, HaveLogitsOfMinusInfinity) {
  for (const int32_t ranks : {1, 2}) {
    for (const float cap : {0.0f, 3.0f}) {
      for (const int32_t tokens : {1, 9})
        expect_suppressed(DeviceChoice::cpu, ranks, cap, tokens);
    }
  }
}

TEST(CudaSuppressedTokens, HaveLogitsOfMinusInfinity) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const float cap : {0.0f, 3.0f}) {
    for (const int32_t tokens : {1, 9})
      expect_suppressed(DeviceChoice::cuda, 1, cap, tokens);
  }
}

test::Answer answer_with(const std::vector<int32_t>& forbidden, float temperature) {
  ModelParts model = capped_model(3.0f);
  if (!forbidden.empty()) model.keys[kKey] = forbidden;
  const std::vector<std::byte> file = model.build();
  Engine engine(open_model_in_memory(file, "model.gguf"), options_of(DeviceChoice::cpu, 1));
  Request request = test::greedy_request("r", {3, 4, 5}, 24);
  request.sampling.temperature = temperature;
  request.sampling.seed = 7;
  request.sampling.logprobs = 5;
  return test::answer_of(engine, request);
}

TEST(SuppressedTokens, AreNeitherDrawnNorAmongTheLikeliest) {
  for (const float temperature : {0.0f, 1.0f}) {
    const std::vector<TokenId> plain = answer_with({}, temperature).tokens;
    const std::vector<int32_t> forbidden(plain.begin(), plain.end());
    const test::Answer answer = answer_with(forbidden, temperature);
    EXPECT_EQ(answer.tokens.size(), 24u);
    for (const SampledToken& token : answer.logprobs) {
      EXPECT_EQ(std::ranges::count(forbidden, token.token), 0);
      EXPECT_TRUE(std::isfinite(token.logprob));
      for (const TokenLogprob& likely : token.top)
        EXPECT_EQ(std::ranges::count(forbidden, likely.token), 0);
    }
  }
}

TEST(SuppressedTokens, AreRefusedByName) {
  const auto refusal = [](const ModelParts::Value& value) {
    ModelParts model = test::tiny_model("llama");
    model.keys[kKey] = value;
    const std::vector<std::byte> file = model.build();
    return test::refusal_of<FileError>([&] { open_model_in_memory(file, "model.gguf"); });
  };
  for (const int32_t token : {-1, 1 << 20}) {
    EXPECT_THAT(refusal(std::vector<int32_t>{3, token}), HasSubstr(kKey));
    EXPECT_THAT(refusal(std::vector<int32_t>{3, token}), HasSubstr(fmt::format("token {}, expected", token)));
  }
  EXPECT_THAT(refusal(std::vector<int32_t>(1 << 16, 3)), HasSubstr("has 65536 elements, expected at most"));
  EXPECT_THAT(refusal(std::vector<float>{3.0f}), HasSubstr(kKey));
  EXPECT_THAT(refusal(3u), HasSubstr(kKey));
  EXPECT_EQ(refusal(std::vector<int32_t>{}), "");
}

}  // namespace
}  // namespace minfer
