#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/attention/decode/attention_plan.h"
#include "tests/support/attention_run.h"
#include "tests/support/cuda/cuda_attention_step.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/refusal.h"

// The additions of model families to attention: windows, sinks, capped logits, a scale, values of another size.
namespace minfer {
namespace {

using test::CudaAttentionShape;
using test::CudaAttentionStep;
using test::CudaSequence;
using test::kHeadsAndTypes;

class CudaAttentionOptions : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override {
    if (worst_ > 0.0) fmt::print("largest NMSE {:.2e}\n", worst_);
  }
  void expect(const CudaAttentionShape& shape, const std::vector<CudaSequence>& sequences,
              size_t num_decode = 0) {
    CudaAttentionStep step(shape, sequences, static_cast<int32_t>(num_decode));
    step.launch();
    step.check();
    worst_ = std::max(worst_, step.worst());
  }
  double worst_ = 0.0;
};

/// Decoding sequences whose contexts end around the edges of blocks and tiles.
const std::vector<CudaSequence> kOneByOne{{1, 1},  {15, 1}, {16, 1},  {0, 1},    {17, 1},
                                          {64, 1}, {65, 1}, {300, 1}, {1025, 1}, {63, 1}};
/// Whole prompts and ends of prompts around the edges of key tiles and query tiles.
const std::vector<CudaSequence> kPrompts{{150, 150}, {300, 17}, {2, 2},   {1, 1},   {257, 60},
                                         {64, 64},   {420, 70}, {128, 1}, {513, 20}};

/// Scores larger than a trained model's, so that a cap and a scale matter.
CudaAttentionShape with_all(int32_t window, int32_t heads = 8) {
  return {.heads = heads,
          .options = {.window = window, .logit_cap = 5.0, .sinks = test::random_sinks(heads)},
          .scale = 0.2f};
}

TEST_F(CudaAttentionOptions, DecodesInWindows) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const int32_t window : {1, 16, 17, 100, 1024}) {
      expect({.heads = 4, .head_size = head_size, .kv = kv, .options = {.window = window}}, kOneByOne,
             kOneByOne.size());
    }
  }
}

TEST_F(CudaAttentionOptions, PrefillsInWindows) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const int32_t window : {1, 63, 64, 65, 80, 81, 127, 129, 200}) {
      expect({.heads = 4, .head_size = head_size, .kv = kv, .options = {.window = window}}, kPrompts);
    }
  }
}

TEST_F(CudaAttentionOptions, HiddenPositions) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const int32_t hidden : {1, 17, 70}) {
      for (const int32_t window : {0, 40}) {
        const CudaAttentionShape shape{
            .heads = 4, .head_size = head_size, .kv = kv, .options = {.window = window, .hidden = hidden}};
        expect(shape, kOneByOne, kOneByOne.size());
        expect(shape, kPrompts);
      }
    }
  }
}

/// Queries at both ends of chunks, and query tiles that contain the end of one chunk and the begin of the next.
TEST_F(CudaAttentionOptions, InChunks) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const int32_t keys : {1, 16, 17, 63, 64, 65, 100, 129, 300, 1024}) {
      const CudaAttentionShape shape{
          .heads = 4, .head_size = head_size, .kv = kv, .options = {.window = keys, .chunked = true}};
      expect(shape, kOneByOne, kOneByOne.size());
      expect(shape, kPrompts);
    }
  }
}

TEST_F(CudaAttentionOptions, ChunksInBlocksAndGroupsOfEverySize) {
  for (const auto& [block_size, group] : {std::pair{1, 5}, {8, 1}, {12, 2}, {32, 7}, {128, 8}, {256, 12}}) {
    for (const int32_t keys : {5, 33, 150}) {
      const CudaAttentionShape shape{
          .heads = 2 * group, .block_size = block_size, .options = {.window = keys, .chunked = true}};
      expect(shape, kPrompts);
      expect(shape, kOneByOne, kOneByOne.size());
    }
  }
}

TEST_F(CudaAttentionOptions, ChunksOfLongContexts) {
  for (const int32_t head_size : cuda::kTensorCoreHeads) {
    for (const int32_t keys : {128, 1000, 2048}) {
      const CudaAttentionShape shape{.head_size = head_size, .options = {.window = keys, .chunked = true}};
      expect(shape, {{4097, 1}, {1, 1}, {0, 1}, {4096, 1}, {2000, 1}, {2001, 1}}, 6);
      expect(shape, {{5000, 20}, {3, 3}, {4100, 60}, {4097, 1}, {2048, 33}});
    }
  }
}

TEST_F(CudaAttentionOptions, WindowsInBlocksOfEverySize) {
  for (const int32_t block_size : {1, 8, 12, 16, 32, 128, 256}) {
    for (const int32_t window : {1, 33, 150}) {
      const CudaAttentionShape shape{
          .heads = 6, .kv_heads = 3, .block_size = block_size, .options = {.window = window}};
      expect(shape, kPrompts);
      expect(shape, kOneByOne, kOneByOne.size());
    }
  }
}

TEST_F(CudaAttentionOptions, WindowsOfEveryGroup) {
  for (const int32_t group : {1, 2, 4, 7, 8, 12}) {
    for (const int32_t window : {5, 70}) {
      const CudaAttentionShape shape{.heads = 2 * group, .options = {.window = window}};
      expect(shape, kPrompts);
      expect(shape, kOneByOne, kOneByOne.size());
    }
  }
}

TEST_F(CudaAttentionOptions, ShortWindowsOfLongContexts) {
  for (const int32_t head_size : cuda::kTensorCoreHeads) {
    for (const int32_t window : {1, 128, 1000}) {
      const CudaAttentionShape shape{.head_size = head_size, .options = {.window = window}};
      expect(shape, {{4097, 1}, {1, 1}, {0, 1}, {16, 1}, {2000, 1}, {33, 1}}, 6);
      expect(shape, {{5000, 20}, {3, 3}, {300, 60}, {4097, 1}, {2048, 33}});
    }
  }
}

TEST_F(CudaAttentionOptions, Sinks) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const int32_t group : {1, 8}) {
      const CudaAttentionShape shape{.heads = 2 * group,
                                     .head_size = head_size,
                                     .kv = kv,
                                     .options = {.sinks = test::random_sinks(2 * group)}};
      expect(shape, kPrompts);
      expect(shape, kOneByOne, kOneByOne.size());
      expect(shape, {{4097, 1}, {0, 1}, {5, 1}}, 3);  // shared by many thread blocks
    }
  }
}

TEST_F(CudaAttentionOptions, CappedLogits) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const double cap : {1.0, 50.0}) {
      const CudaAttentionShape shape{
          .heads = 4, .head_size = head_size, .kv = kv, .options = {.logit_cap = cap}, .scale = 0.5f};
      expect(shape, kPrompts);
      expect(shape, kOneByOne, kOneByOne.size());
    }
  }
}

/// One test for each head size and type, so that the name of a test that hangs tells which.
class CudaAttentionAllOptions : public CudaAttentionOptions,
                                public testing::WithParamInterface<test::HeadAndType> {
 protected:
  void expect_in_windows(const std::vector<CudaSequence>& sequences, size_t num_decode) {
    for (const int32_t window : {1, 77, 600}) {
      CudaAttentionShape shape = with_all(window, 4);
      shape.head_size = GetParam().head_size;
      shape.kv = GetParam().kv;
      expect(shape, sequences, num_decode);
    }
  }
};

TEST_P(CudaAttentionAllOptions, Prefill) {
  expect_in_windows(kPrompts, 0);
}
TEST_P(CudaAttentionAllOptions, Decode) {
  expect_in_windows(kOneByOne, kOneByOne.size());
}
TEST_P(CudaAttentionAllOptions, DecodeAndPrefill) {
  expect_in_windows({{300, 1}, {1, 1}, {700, 1}, {40, 40}, {1000, 33}, {5, 2}, {17, 1}}, 3);
}
/// Decoding with several tokens a sequence, followed by another launch of the same kernel.
TEST_P(CudaAttentionAllOptions, DraftTokensAndPrefill) {
  expect_in_windows({{300, 3}, {5, 5}, {700, 1}, {40, 40}}, 3);
}

INSTANTIATE_TEST_SUITE_P(HeadsAndTypes, CudaAttentionAllOptions, testing::ValuesIn(kHeadsAndTypes),
                         [](const auto& param_info) {
                           return fmt::format("{}_{}", param_info.param.head_size, name(param_info.param.kv));
                         });

TEST_F(CudaAttentionOptions, ExactlyInF32) {
  for (const int32_t head_size : {64, 80, 256, 512}) {
    for (const int32_t window : {0, 1, 50, 1000}) {
      CudaAttentionShape shape = with_all(window);
      shape.head_size = head_size;
      shape.qkv = shape.kv = shape.out = DType::f32;
      expect(shape, {{300, 1}, {1, 1}, {0, 1}, {40, 40}, {200, 33}, {5, 2}}, 3);
      shape.options.logit_cap = 0.0;
      expect(shape, {{300, 1}, {1, 1}, {0, 1}, {40, 40}, {200, 33}, {5, 2}}, 3);
    }
  }
}

TEST_F(CudaAttentionOptions, ValuesOfAnotherSize) {
  for (const DType qkv : {DType::f32, DType::bf16}) {
    for (const auto& [head_size, value_size] :
         {std::pair{192, 128}, {64, 256}, {128, 64}, {20, 36}, {128, 512}}) {
      CudaAttentionShape shape = with_all(30);
      shape.qkv = shape.out = shape.kv = qkv;
      shape.head_size = head_size;
      shape.v_head_size = value_size;
      expect(shape, {{300, 1}, {1, 1}, {0, 1}, {40, 40}, {200, 33}, {5, 2}}, 3);
    }
  }
}

TEST_F(CudaAttentionOptions, WritesFp8) {
  for (const DType kv : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    CudaAttentionShape shape = with_all(100);
    shape.kv = kv;
    shape.out = DType::fp8;
    expect(shape, kOneByOne, kOneByOne.size());
    expect(shape, {{4097, 1}, {1, 1}, {129, 129}, {1, 1}, {65, 1}, {200, 70}, {64, 64}}, 2);
  }
}

/// Layers of one step, each with its own plan for its window.
TEST_F(CudaAttentionOptions, LayersOfAStepHaveWindowsOfTheirOwn) {
  std::vector<CudaSequence> sequences = kOneByOne;
  sequences.push_back({2000, 300});
  CudaAttentionStep step(with_all(100), sequences, static_cast<int32_t>(kOneByOne.size()), 0, {0, 17});
  for (const int32_t window : {100, 0, 17, 100}) {
    step.set_options({.window = window});
    step.launch();
    step.check();
  }
}

TEST_F(CudaAttentionOptions, ChunksAreNoWindowsOfThatSize) {
  std::vector<CudaSequence> sequences = kOneByOne;
  sequences.push_back({2000, 300});
  CudaAttentionStep step({.options = {.window = 100}}, sequences, static_cast<int32_t>(kOneByOne.size()), 0,
                         {AttentionWindow{}, {100, true}});
  for (const bool chunked : {false, true, false}) {
    step.set_options({.window = 100, .chunked = chunked});
    step.launch();
    step.check();
  }
}

TEST_F(CudaAttentionOptions, ACapturedGraphServesOtherContexts) {
  for (const DType kv : {DType::bf16, DType::f8_e4m3}) {
    CudaAttentionShape shape = with_all(100);
    shape.kv = kv;
    CudaAttentionStep step(shape, {{1, 1}, {2, 1}, {3, 1}, {0, 1}, {50, 20}}, 4, 3000);
    const cuda::GraphExec graph = step.run().capture([&] { step.launch(); });
    for (const std::vector<CudaSequence>& sequences :
         {std::vector<CudaSequence>{{1, 1}, {2, 1}, {3, 1}, {0, 1}, {50, 20}},
          {{3000, 1}, {17, 1}, {100, 1}, {1, 1}, {3000, 20}},
          {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {20, 20}},
          {{101, 1}, {2999, 1}, {0, 1}, {555, 1}, {128, 20}}}) {
      step.assign(sequences);
      step.run().replay(graph);
      step.check();
    }
  }
}

TEST_F(CudaAttentionOptions, GiveTheSameBitsEveryTime) {
  CudaAttentionStep step(with_all(300), {{4097, 1}, {300, 1}, {17, 1}, {2000, 1}, {100, 100}, {2000, 300}},
                         4);
  step.launch();
  const std::vector<float> first = step.values();
  for (int i = 0; i < 20; ++i)
    step.launch();
  EXPECT_EQ(step.values(), first);
}

TEST_F(CudaAttentionOptions, AreRefusedByName) {
  CudaAttentionStep step({}, {{20, 1}}, 1);
  step.set_options({.window = 7});
  EXPECT_NE(test::refusal_of([&] {
              step.attend(0, 1);
            }).find("StepLimits::attention_kinds has, found 2 KV heads of 128 with a window of 7"),
            std::string::npos)
      << test::refusal_of([&] { step.attend(0, 1); });
  step.set_options({.window = -7});
  EXPECT_NE(test::refusal_of([&] { step.attend(0, 1); }).find("found -7"), std::string::npos);
  step.set_options({.logit_cap = -1.0});
  EXPECT_NE(test::refusal_of([&] { step.attend(0, 1); }).find("logits capped"), std::string::npos);
}

/// Needs no device: the chunks of 16 keys with a key in a decoding sequence's window.
TEST(DecodeChunks, AreThoseOfTheWindow) {
  for (const int32_t window : {0, 1, 15, 16, 17, 100}) {
    for (int32_t context = 0; context < 300; ++context) {
      const int32_t first_key = window > 0 ? std::max(0, context - window) : 0;
      const cuda::DecodeChunks chunks = cuda::DecodeChunks::of(context, window);
      ASSERT_EQ(chunks.skipped, first_key / 16) << "window " << window << ", context " << context;
      ASSERT_EQ(chunks.skipped + chunks.count, std::max(1, (context + 15) / 16))
          << "window " << window << ", context " << context;
    }
  }
}

TEST(DecodeChunks, AreThoseOfTheChunkOfPositions) {
  for (const int32_t keys : {1, 15, 16, 17, 100}) {
    for (int32_t context = 0; context < 300; ++context) {
      const int32_t first_key = context > 0 ? (context - 1) / keys * keys : 0;
      const cuda::DecodeChunks chunks = cuda::DecodeChunks::of(context, {keys, true});
      ASSERT_EQ(chunks.skipped, first_key / 16) << "chunks of " << keys << ", context " << context;
      ASSERT_EQ(chunks.skipped + chunks.count, std::max(1, (context + 15) / 16))
          << "chunks of " << keys << ", context " << context;
    }
  }
}

TEST(DecodePlans, AreOneAKind) {
  constexpr int32_t kSms = 132;
  const std::vector<AttentionKind> kinds{
      {16, 256, 1024}, {4, 512}, {16, 256, 1024}, {16, 256}, {16, 256, {1024, true}}};
  const cuda::DecodePlans plans = cuda::DecodePlans::of(kinds, 40, kSms);
  EXPECT_EQ(plans.count, 4);
  EXPECT_EQ(plans.find({16, 256, 1024}), 0);
  EXPECT_EQ(plans.find({16, 256, {1024, true}}), 3);
  EXPECT_THROW(plans.find({16, 256, 1023}), Error);
  EXPECT_THROW(plans.find({8, 256, 1024}), Error);
  EXPECT_THROW(plans.find({16, 512, 1024}), Error);
  const std::vector<AttentionKind> of_heads{{4, 64}, {4, 64, {}, 8}};
  EXPECT_EQ(cuda::DecodePlans::of(of_heads, 16, kSms).plans[1].per_kv_head.query_heads, 2);
  const cuda::DecodePlan wide = plans.plans[plans.find({4, 512})];
  EXPECT_EQ(wide.per_kv_head.query_heads, 5);
  EXPECT_EQ(wide.units, 8);
  EXPECT_EQ(wide.num_shares, kSms);
  EXPECT_EQ(plans.plans[0].units, 16);
  EXPECT_EQ(plans.plans[0].num_shares, 2 * kSms);
  EXPECT_EQ(plans.most_shares(), 2 * kSms);
  EXPECT_EQ(plans.most_units(), 16);
}

TEST(DecodePlans, HaveTheirLimits) {
  std::vector<AttentionKind> kinds;
  for (int32_t kind = 0; kind < cuda::kMaxAttentionKinds; ++kind)
    kinds.push_back({4, 64, kind});
  EXPECT_EQ(cuda::DecodePlans::of(kinds, 4, 1).count, cuda::kMaxAttentionKinds);
  kinds.push_back({2, 64});
  EXPECT_THROW(cuda::DecodePlans::of(kinds, 4, 1), Error);
  EXPECT_THROW(cuda::DecodePlans::of(std::vector<AttentionKind>{{4, 64, -1}}, 4, 1), Error);
}

}  // namespace
}  // namespace minfer
