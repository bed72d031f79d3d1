// Advice on changes by which a model fits that is too large.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/options/sizes.h"
#include "engine/ranks/rank_model.h"
#include "models/decoder/memory/kv_cache.h"
#include "tests/support/engine/scripted_backend.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kOther = 100'000;

class WhatWouldFit : public ::testing::Test {
 protected:
  explicit WhatWouldFit(const std::string& model = "synthetic:tiny:bf16")
      : source_(make_synthetic_model(model)) {
    options_.kv_cache_dtype = DType::bf16;
    options_.kv_layout = KvLayout{};
    options_.max_model_len = 2048;
  }

  int64_t weights() const { return gpu_weight_bytes(*source_, options_); }
  int64_t cache(DType dtype) const {
    return static_cast<int64_t>(KvCache::block_bytes(source_->config(), {}, dtype, options_.block_size)) *
           blocks_for(options_.max_model_len, options_.block_size);
  }
  std::string ways(int64_t usable) const {
    return what_would_fit(*source_, options_, {.usable_bytes = usable, .other_bytes = kOther});
  }

  std::unique_ptr<ModelSource> source_;
  EngineOptions options_;
};

TEST_F(WhatWouldFit, ACacheInFp8IfThatIsEnough) {
  const int64_t enough = kOther + weights() + cache(DType::f8_e4m3);
  EXPECT_THAT(ways(enough), HasSubstr("--kv-cache-dtype fp8"));
  EXPECT_THAT(ways(enough - 1), Not(HasSubstr("what would fit: --kv-cache-dtype")));
  options_.kv_cache_dtype = DType::f8_e4m3;
  EXPECT_THAT(ways(enough - 1), Not(HasSubstr("--kv-cache-dtype")));
}

TEST_F(WhatWouldFit, WeightsInFp8IfThatIsEnough) {
  EngineOptions quantised = options_;
  quantised.quantization = DType::fp8;
  const int64_t small = gpu_weight_bytes(*source_, quantised);
  ASSERT_LT(small, weights());
  EXPECT_THAT(ways(kOther + small + cache(DType::bf16)), HasSubstr("--quantization fp8"));
  EXPECT_THAT(ways(kOther + small + cache(DType::f8_e4m3)),
              HasSubstr("--quantization fp8 with --kv-cache-dtype fp8"));
  EXPECT_THAT(ways(kOther + small + cache(DType::f8_e4m3) - 1),
              Not(HasSubstr("--quantization fp8 with --kv")));
}

TEST_F(WhatWouldFit, ShorterSequencesToTheLastBlock) {
  const int64_t block = cache(DType::bf16) / blocks_for(2048, options_.block_size);
  EXPECT_THAT(ways(kOther + weights() + 3 * block), HasSubstr("--max-model-len 48,"));
  EXPECT_THAT(ways(kOther + weights() + 3 * block - 1), HasSubstr("--max-model-len 32,"));
  EXPECT_THAT(ways(kOther + weights() + block - 1), Not(HasSubstr("--max-model-len")));
  options_.max_model_len = 0;
  EXPECT_THAT(ways(kOther + weights()), Not(HasSubstr("--max-model-len")));
}

TEST_F(WhatWouldFit, TheLargestTypeOfAFile) {
  const int64_t q6 = gpu_weight_bytes(*make_synthetic_model("synthetic:tiny:q6_k"), options_);
  EXPECT_THAT(ways(kOther + q6 + cache(DType::bf16)), HasSubstr("a file of q6_k"));
  EXPECT_THAT(ways(kOther + q6 + cache(DType::bf16) - 1), HasSubstr("a file of q5_k"));
}

TEST_F(WhatWouldFit, TheFewestGpusThatCanShareIt) {
  options_.max_model_len = 16;
  EXPECT_THAT(ways(kOther + weights() * 5 / 8), HasSubstr("--tensor-parallel-size 2"));
  EXPECT_THAT(ways(kOther + weights() * 3 / 8), HasSubstr("--tensor-parallel-size 4"))
      << "three cannot share eight heads";
  options_.tensor_parallel_size = 2;
  EXPECT_THAT(ways(kOther + weights() * 5 / 8), HasSubstr("--tensor-parallel-size 4"))
      << "what one of two has is divided again";
}

TEST_F(WhatWouldFit, SaysSoIfNothingDoes) {
  EXPECT_EQ(ways(kOther), "nothing would fit, up to 64 such GPUs");
}

class WhatWouldFitOfExperts : public WhatWouldFit {
 protected:
  WhatWouldFitOfExperts() : WhatWouldFit("synthetic:tiny-moe:bf16") {}
};

TEST_F(WhatWouldFitOfExperts, KnowsWhatAGpuMakesOfRareTypes) {
  const int64_t q3 = gpu_weight_bytes(*make_synthetic_model("synthetic:tiny-moe:q3_k"), options_);
  const int64_t q4 = gpu_weight_bytes(*make_synthetic_model("synthetic:tiny-moe:q4_k"), options_);
  ASSERT_LT(q4, q3) << "experts of q3_k become q6_k";
  EXPECT_THAT(ways(kOther + q4 + cache(DType::bf16)), HasSubstr("a file of q4_k"));
  EXPECT_THAT(ways(kOther + q4 + cache(DType::bf16) - 1), Not(HasSubstr("a file of")));
}

class WhatWouldFitOfLatents : public WhatWouldFit {
 protected:
  WhatWouldFitOfLatents() : WhatWouldFit("synthetic:tiny-latent:bf16") {}
};

TEST_F(WhatWouldFitOfLatents, NamesNoTypeOfTheCacheThatIsNotOffered) {
  EngineOptions quantised = options_;
  quantised.quantization = DType::fp8;
  const int64_t small = gpu_weight_bytes(*source_, quantised);
  for (const int64_t weights_bytes : {weights(), small})
    EXPECT_THAT(ways(kOther + weights_bytes + cache(DType::f8_e4m3)), Not(HasSubstr("--kv-cache-dtype")));
}

/// The refusal on a GPU with that much memory, of which `free` bytes are free, and stay free.
std::string refusal_with(const ModelSource& source, const EngineOptions& options, int64_t free,
                         int64_t total) {
  test::ScriptedBackend::Options backend;
  backend.vocab_size = source.config().vocab_size;
  backend.device_memory = DeviceMemory{.free_bytes = free, .total_bytes = total};
  return test::refusal_of([&] {
    RankModel(source, options, 1, {}, std::make_unique<test::ScriptedBackend>(backend)).most_kv_blocks();
  });
}

TEST_F(WhatWouldFit, RefusesWeightsThatExceedTheFreeMemory) {
  options_.max_model_len = 64;
  options_.gpu_memory_utilization = 1.0;
  const std::string refusal = refusal_with(*source_, options_, weights() - 1, int64_t{1} << 40);
  EXPECT_THAT(refusal,
              AllOf(HasSubstr("tiny:bf16: weights of"), HasSubstr("do not fit into the memory of a GPU")));
  EXPECT_THAT(refusal, HasSubstr("nothing would fit")) << "graphs alone take more";
  const std::string other =
      refusal_with(*source_, options_, weights() - 1 + (int64_t{1} << 40), int64_t{1} << 41);
  EXPECT_EQ(other, "");
}

TEST_F(WhatWouldFit, RefusesWhatLeavesNothingForTheCache) {
  options_.max_model_len = 64;
  options_.gpu_memory_utilization = 0.5;
  constexpr int64_t kTotal = int64_t{1} << 29;  // graphs need half of it
  const std::string refusal = refusal_with(*source_, options_, kTotal, kTotal);
  EXPECT_THAT(refusal,
              AllOf(HasSubstr("gpu-memory-utilization: 0.5 of 536870912 bytes"), HasSubstr("would fit")));
  EXPECT_EQ(refusal_with(*source_, options_, 2 * kTotal, 2 * kTotal), "");
}

TEST(ChooseKvBlocks, SaysWhichLengthAndTypeWouldFit) {
  const auto source = make_synthetic_model("synthetic:tiny:bf16");
  const auto refusal = [&](int32_t num_blocks, int64_t most_blocks) -> std::string {
    EngineOptions options;
    options.kv_cache_dtype = DType::bf16;
    options.kv_layout = KvLayout{};
    options.max_model_len = 2048;
    options.num_blocks = num_blocks;
    try {
      choose_kv_blocks(options, source->config(), most_blocks);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_THAT(refusal(0, 64), AllOf(HasSubstr("2048 tokens do not fit"), HasSubstr("lower it to 1024"),
                                    HasSubstr("--kv-cache-dtype fp8")));
  EXPECT_THAT(refusal(0, 63), AllOf(HasSubstr("lower it to 1008"), Not(HasSubstr("fp8"))));
  EXPECT_THAT(refusal(64, 0), Not(HasSubstr("fp8"))) << "the number of blocks is given";
  EXPECT_EQ(refusal(0, 128), "");
}

TEST(ChooseKvBlocks, CountsTheWindowAndWhatStepsComputeBesideAllTokens) {
  const ModelConfig config = synthetic_config("gemma-3-12b");
  EngineOptions options;
  options.kv_cache_dtype = DType::bf16;
  options.steps_ahead = 1;
  options.kv_layout = KvLayout::of(config, config.context_length, options.block_size);
  // 131,072 tokens for the layers with full attention, and a window and two steps for the others.
  const int64_t enough = 1639 + (1024 + 2 * 2048) / 16 + 1;
  EngineOptions chosen = options;
  choose_kv_blocks(chosen, config, enough);
  EXPECT_EQ(chosen.max_model_len, 131072);
  EXPECT_EQ(kv_cache_tokens(chosen), 131072);
  chosen = options;
  choose_kv_blocks(chosen, config, enough - 1);
  EXPECT_EQ(chosen.max_model_len, 1638 * 80);
  options.max_model_len = 131072;
  EXPECT_THROW(choose_kv_blocks(options, config, enough - 1), Error);
  options.num_blocks = 0;
  choose_kv_blocks(options, config, int64_t{1} << 24);
  EXPECT_EQ(options.num_blocks, 256 * enough) << "all slots filled to the end";
}

}  // namespace
}  // namespace minfer
