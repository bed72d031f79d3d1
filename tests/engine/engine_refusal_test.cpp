// Prompts, ids, parameters and options that the engine refuses, and its messages.
#include <functional>
#include <limits>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/options/sizes.h"
#include "models/decoder/weights/model_source.h"
#include "tests/support/engine/engine_run.h"
#include "tests/support/engine/tiny_engine.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using test::answer_of;
using test::Answers;
using test::greedy_request;
using test::kTinyPrompt;
using test::make_tiny_engine;
using test::tiny_engine_options;

class EngineRefusalTest : public testing::Test {
 protected:
  std::unique_ptr<Engine> engine_ = make_tiny_engine();
};

TEST_F(EngineRefusalTest, PromptsThatCanNeverRunAreAnsweredAndNamed) {
  engine_->submit(greedy_request("empty", {}, 4));
  engine_->submit(greedy_request("long", std::vector<TokenId>(128, 300), 4));
  engine_->submit(greedy_request("fits", std::vector<TokenId>(127, 300), 4));
  const Answers answers = Answers().run(*engine_);
  EXPECT_EQ(answers.at("empty").last.finish, FinishReason::refused);
  EXPECT_EQ(answers.at("empty").last.finish_detail, "the prompt has no tokens");
  EXPECT_EQ(answers.at("long").last.finish, FinishReason::refused);
  EXPECT_NE(answers.at("long").last.finish_detail.find("max_model_len = 128"), std::string::npos);
  EXPECT_EQ(answers.at("fits").last.finish, FinishReason::length);
  EXPECT_EQ(answers.at("fits").tokens.size(), 1u);
}

TEST(EngineCapacityTest, APromptOverTheKvCapacityDoesNotBlockTheQueue) {
  EngineOptions options = tiny_engine_options();
  options.max_model_len = 0;
  options.num_blocks = 3;  // 48 tokens, far below the model's context
  const auto engine = make_tiny_engine(options);
  engine->submit(greedy_request("large", std::vector<TokenId>(49, 300), 4));
  engine->submit(greedy_request("small", kTinyPrompt, 1000));
  const Answers answers = Answers().run(*engine);
  EXPECT_EQ(answers.at("large").last.finish, FinishReason::refused);
  EXPECT_NE(answers.at("large").last.finish_detail.find("48"), std::string::npos);
  EXPECT_EQ(answers.at("small").last.output_tokens, 28);
}

TEST_F(EngineRefusalTest, AnIdIsInUseUntilItsAnswer) {
  engine_->submit(greedy_request("twin", kTinyPrompt, 3));
  EXPECT_NE(
      test::refusal_of([&] { engine_->submit(greedy_request("twin", kTinyPrompt, 3)); }).find("\"twin\""),
      std::string::npos);
  EXPECT_EQ(Answers().run(*engine_).at("twin").tokens.size(), 3u);
  EXPECT_EQ(answer_of(*engine_, greedy_request("twin", kTinyPrompt, 2)).tokens.size(), 2u);
  engine_->submit(greedy_request("refused", {}, 3));
  EXPECT_THROW(engine_->submit(greedy_request("refused", kTinyPrompt, 3)), Error);
}

TEST_F(EngineRefusalTest, TokensOutsideTheVocabularyAreRefused) {
  for (const TokenId token : {-1, 512, INT32_MAX}) {
    const std::string message = test::refusal_of([&] {
      engine_->submit(greedy_request("a", {300, token}, 3));
    });
    EXPECT_EQ(message, fmt::format("prompt: token {} is not in the vocabulary of 512", token));
  }
  EXPECT_FALSE(engine_->has_work());
}

// 0.01 as a float is less than 0.01 as a double.
TEST_F(EngineRefusalTest, TheEndsOfRangesAreTaken) {
  const auto take = [&](float SamplingParams::*field, std::initializer_list<float> ends) {
    for (const float end : ends) {
      SamplingParams params;
      params.*field = end;
      EXPECT_NO_THROW(params.validate(512)) << end;
    }
  };
  take(&SamplingParams::temperature, {0.0f, 100.0f});
  take(&SamplingParams::top_p, {0.0f, 1.0f});
  take(&SamplingParams::min_p, {0.0f, 1.0f});
  take(&SamplingParams::repetition_penalty, {0.01f, 100.0f});
  take(&SamplingParams::presence_penalty, {-2.0f, 2.0f});
  take(&SamplingParams::frequency_penalty, {-2.0f, 2.0f});
}

TEST_F(EngineRefusalTest, BadParametersAreNamed) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto expect_named = [&](const char* field, const std::function<void(SamplingParams&)>& spoil) {
    Request request = greedy_request("a", kTinyPrompt, 3);
    spoil(request.sampling);
    EXPECT_EQ(test::refusal_of([&] { engine_->submit(request); }).rfind(field, 0), 0u) << field;
  };
  const std::pair<const char*, float SamplingParams::*> reals[] = {
      {"temperature", &SamplingParams::temperature},
      {"top_p", &SamplingParams::top_p},
      {"min_p", &SamplingParams::min_p},
      {"repetition_penalty", &SamplingParams::repetition_penalty},
      {"presence_penalty", &SamplingParams::presence_penalty},
      {"frequency_penalty", &SamplingParams::frequency_penalty}};
  for (const auto& [field, member] : reals) {
    for (const float bad : {kNan, kInfinity, -kInfinity, -2.5f, 1e30f})
      expect_named(field, [bad, target = member](SamplingParams& params) { params.*target = bad; });
  }
  const std::pair<const char*, int32_t SamplingParams::*> integers[] = {
      {"top_k", &SamplingParams::top_k},
      {"max_tokens", &SamplingParams::max_tokens},
      {"min_tokens", &SamplingParams::min_tokens},
      {"logprobs", &SamplingParams::logprobs},
      {"stream_interval", &SamplingParams::stream_interval}};
  for (const auto& [field, member] : integers) {
    for (const int32_t bad : {-2, INT32_MIN})
      expect_named(field, [bad, target = member](SamplingParams& params) { params.*target = bad; });
  }
  expect_named("min_tokens", [](SamplingParams& params) { params.min_tokens = 4; });
  expect_named("logprobs", [](SamplingParams& params) { params.logprobs = INT32_MAX; });
  expect_named("logit_bias", [](SamplingParams& params) { params.logit_bias = {{512, 1.0f}}; });
  expect_named("logit_bias", [](SamplingParams& params) { params.logit_bias = {{-1, 1.0f}}; });
  expect_named("logit_bias", [](SamplingParams& params) { params.logit_bias = {{5, kNan}}; });
  expect_named("stop_token_ids", [](SamplingParams& params) { params.stop_token_ids = {512}; });
  expect_named("stop", [](SamplingParams& params) { params.stop = {"x", ""}; });
  EXPECT_FALSE(engine_->has_work());
}

/// A GPU offers the types whose keys tensor cores read. It offers f32, which takes another kind of kernel, only beside exact activations.
TEST(EngineOptionsTest, TypesOfTheKvCacheAreOfferedWhereAttentionIsFast) {
  const std::unique_ptr<ModelSource> dense = make_synthetic_model("synthetic:tiny:bf16"),
                                     latent = make_synthetic_model("synthetic:tiny-latent:bf16");
  const auto refusal = [](const ModelSource& model, const char* backend, DType activations, DType kv) {
    EngineOptions options;
    options.kv_cache_dtype = kv;
    BackendInfo info;
    info.name = backend;
    info.activation_dtype = activations;
    return test::refusal_of([&] { choose_kv_dtype(options, model.config(), info); });
  };
  EXPECT_EQ(refusal(*dense, "cuda", DType::bf16, DType::f32),
            "kv-cache-dtype: f32 is not offered for " + dense->config().name +
                " on the cuda backend with activations in bf16, expected bf16 or f16 or fp8_e4m3");
  EXPECT_EQ(refusal(*latent, "cuda", DType::bf16, DType::f8_e4m3),
            "kv-cache-dtype: fp8_e4m3 is not offered for " + latent->config().name +
                " on the cuda backend with activations in bf16, expected bf16 or f16");
  EXPECT_NE(refusal(*dense, "cuda", DType::f32, DType::bf16), "");
  EXPECT_NE(refusal(*dense, "cpu", DType::f32, DType::f8_e4m3), "");
  for (const DType kv : {DType::bf16, DType::f16})
    EXPECT_EQ(refusal(*dense, "cuda", DType::bf16, kv) + refusal(*latent, "cuda", DType::bf16, kv), "");
  EXPECT_EQ(refusal(*dense, "cuda", DType::bf16, DType::f8_e4m3), "");
  EXPECT_EQ(refusal(*dense, "cuda", DType::f32, DType::f32), "");
  for (const DType kv : {DType::f32, DType::bf16, DType::f16})
    EXPECT_EQ(refusal(*dense, "cpu", DType::f32, kv), "");
}

TEST(EngineOptionsTest, OptionsThatCannotBeMetAreNamed) {
  const auto expect_named = [](const char* option, const std::function<void(EngineOptions&)>& spoil) {
    EngineOptions options = tiny_engine_options();
    spoil(options);
    EXPECT_EQ(test::refusal_of([&] { make_tiny_engine(options); }).rfind(option, 0), 0u) << option;
  };
  expect_named("max-model-len", [](EngineOptions& options) { options.max_model_len = 2049; });
  expect_named("max-model-len", [](EngineOptions& options) { options.max_model_len = -1; });
  expect_named("max-model-len", [](EngineOptions& options) { options.num_blocks = 7; });
  expect_named("max-num-seqs", [](EngineOptions& options) { options.max_num_seqs = 0; });
  expect_named("max-num-batched-tokens", [](EngineOptions& options) { options.max_num_batched_tokens = 0; });
  expect_named("block-size", [](EngineOptions& options) { options.block_size = 0; });
  expect_named("num-blocks", [](EngineOptions& options) { options.num_blocks = -1; });
  expect_named("kv-cache-bytes", [](EngineOptions& options) { options.kv_cache_bytes = -1; });
  expect_named("stream-interval", [](EngineOptions& options) { options.stream_interval = 0; });
  expect_named("threads", [](EngineOptions& options) { options.threads = -1; });
  expect_named("dtype", [](EngineOptions& options) { options.dtype = DType::bf16; });
  expect_named("gpu-memory-utilization",
               [](EngineOptions& options) { options.gpu_memory_utilization = 0.0; });
  expect_named("kv-cache-dtype", [](EngineOptions& options) { options.kv_cache_dtype = DType::q8_0; });
  expect_named("quantization", [](EngineOptions& options) { options.quantization = DType::q8_0; });
  expect_named("max_num_batched_tokens", [](EngineOptions& options) {
    options.enable_chunked_prefill = false;
    options.max_num_batched_tokens = 127;
  });
}

}  // namespace
}  // namespace minfer
