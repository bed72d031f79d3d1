#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_attention_step.h"
#include "tests/support/cuda/cuda_device.h"

namespace minfer {
namespace {

using test::CudaSequence;
using test::kHeadsAndTypes;
using test::kNarrowTypes;
using Shape = test::CudaAttentionShape;
using AttentionStep = test::CudaAttentionStep;

/// Runs a step and compares it with the reference.
double expect_close(const Shape& shape, std::vector<CudaSequence> sequences, int32_t num_decode) {
  AttentionStep step(shape, std::move(sequences), num_decode);
  step.launch();
  step.check();
  return step.worst();
}

class CudaAttention : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
  void TearDown() override {
    if (worst_ > 0.0) fmt::print("largest NMSE {:.2e}\n", worst_);
  }
  void expect(const Shape& shape, std::vector<CudaSequence> sequences, int32_t num_decode) {
    worst_ = std::max(worst_, expect_close(shape, std::move(sequences), num_decode));
  }
  double worst_ = 0.0;
};

/// Decoding sequences whose contexts end around the edges of blocks and tiles.
const std::vector<CudaSequence> kDecode{{1, 1},  {15, 1}, {16, 1},  {0, 1},    {17, 1},
                                        {64, 1}, {65, 1}, {300, 1}, {1025, 1}, {63, 1}};

TEST_F(CudaAttention, DecodesEveryHeadSizeAndTypeExactlyInF32) {
  for (const int32_t head_size : {16, 20, 32, 64, 80, 96, 128, 256, 384, 512}) {
    for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
      Shape shape;
      shape.head_size = head_size;
      shape.qkv = DType::f32;
      shape.kv = kv;
      expect(shape, {{1, 1}, {17, 1}, {0, 1}, {100, 1}}, 4);
    }
  }
}

TEST_F(CudaAttention, MixesDecodeAndPrefillExactlyInF32) {
  Shape shape;
  shape.head_size = 64;
  shape.qkv = shape.kv = DType::f32;
  expect(shape, {{1, 1}, {17, 1}, {40, 40}, {90, 33}, {5, 2}}, 2);
}

TEST_F(CudaAttention, DecodesEveryHeadSizeAndTypeInBf16) {
  for (const int32_t head_size : {32, 64, 80, 96, 128, 192, 256, 320, 512}) {
    for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
      Shape shape;
      shape.head_size = head_size;
      shape.kv = kv;
      expect(shape, kDecode, static_cast<int32_t>(kDecode.size()));
    }
  }
}

TEST_F(CudaAttention, DecodesEveryGroupAndBlockSize) {
  for (const int32_t group : {1, 2, 4, 7, 8, 12}) {
    for (const int32_t block_size : {1, 12, 16, 64, 1024}) {
      Shape shape;
      shape.heads = 2 * group;
      shape.block_size = block_size;
      expect(shape, {{block_size - 1, 1}, {block_size, 1}, {block_size + 1, 1}, {300, 1}}, 4);
    }
  }
}

/// Layers of two kinds in one model: each kind has its own plan, units and thread blocks, and one workspace serves both in turn.
TEST_F(CudaAttention, LayersOfAStepHaveHeadsOfTheirOwn) {
  const std::vector<CudaSequence> sequences{{300, 1}, {1, 1},    {0, 1},  {4097, 1},
                                            {17, 1},  {200, 70}, {40, 40}};
  for (const DType kv : kNarrowTypes) {
    const Shape narrow{.heads = 16, .kv_heads = 8, .head_size = 256, .kv = kv, .options = {.window = 100}};
    const Shape wide{.heads = 16, .kv_heads = 2, .head_size = 512, .kv = kv};
    AttentionStep windowed(narrow, sequences, 5, 0, {}, {{2, 512}});
    AttentionStep full(wide, sequences, 5);
    full.share_workspace(windowed);
    for (AttentionStep* step : {&windowed, &full, &full, &windowed, &full}) {
      step->launch();
      step->check();
    }
  }
}

TEST_F(CudaAttention, DecodesContextsFarApart) {
  Shape shape;
  expect(shape, {{4097, 1}, {1, 1}, {0, 1}, {16, 1}, {2000, 1}, {33, 1}}, 6);
  expect(shape, {{4097, 1}}, 1);
  shape.heads = 8;
  shape.kv_heads = 1;
  expect(shape, {{4097, 1}}, 1);
}

TEST_F(CudaAttention, PrefillsEveryHeadSizeAndType) {
  for (const int32_t head_size : {32, 64, 80, 96, 128, 192, 256, 512}) {
    for (const DType kv : {DType::bf16, DType::f16, DType::f8_e4m3}) {
      Shape shape;
      shape.head_size = head_size;
      shape.kv = kv;
      expect(shape, {{129, 129}, {1, 1}, {65, 1}, {200, 70}, {64, 64}}, 0);
    }
  }
}

TEST_F(CudaAttention, DecodesEveryGroupWithEveryHeadSize) {
  for (const int32_t head_size : cuda::kTensorCoreHeads) {
    for (const int32_t group : {1, 2, 7, 12}) {
      const Shape shape{.heads = 2 * group, .head_size = head_size};
      expect(shape, {{4097, 1}, {1, 1}, {0, 1}, {300, 1}}, 4);  // many thread blocks share the first
    }
  }
}

TEST_F(CudaAttention, PrefillsEveryGroupWithEveryHeadSize) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const int32_t group : {1, 7}) {
      const Shape shape{.heads = 2 * group, .head_size = head_size, .kv = kv};
      expect(shape, {{150, 150}, {300, 17}, {2, 2}, {400, 100}}, 0);
    }
  }
}

TEST_F(CudaAttention, PrefillsEveryGroupAndBlockSize) {
  for (const int32_t group : {1, 2, 4, 7, 8}) {
    for (const int32_t block_size : {1, 12, 16, 1024}) {
      Shape shape;
      shape.heads = 2 * group;
      shape.block_size = block_size;
      expect(shape, {{150, 150}, {300, 17}, {2, 2}}, 0);
    }
  }
}

/// Around the ends of 64, 80 and 128 keys, of cache blocks and of query tiles, for the whole prompt and for its end.
TEST_F(CudaAttention, PrefillsAroundTheEdgesOfStages) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    const Shape shape{.heads = 2, .kv_heads = 1, .head_size = head_size, .kv = kv};
    std::vector<CudaSequence> whole, ends;
    for (const int32_t context : {1, 16, 33, 64, 65, 79, 80, 81, 127, 128, 129, 160, 161, 256, 257, 385}) {
      whole.push_back({context, context});
      for (const int32_t queries : {1, 2, 33, 129}) {
        if (queries < context) ends.push_back({context, queries});
      }
    }
    expect(shape, whole, 0);
    expect(shape, ends, 0);
  }
}

TEST_F(CudaAttention, PrefillsLongContexts) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    for (const int32_t group : {1, 8}) {
      const Shape shape{.heads = group, .kv_heads = 1, .head_size = head_size, .kv = kv};
      expect(shape, {{2500, 40}, {3, 3}, {300, 100}, {4097, 1}, {1000, 33}}, 0);
    }
  }
}

/// Multiples of eight are loaded in boxes of up to 128 keys; 20 is not.
TEST_F(CudaAttention, PrefillsFromBlocksOfEverySize) {
  for (const int32_t head_size : {64, 96, 128, 256, 512}) {
    for (const int32_t block_size : {8, 20, 24, 32, 64, 80, 128, 192, 256}) {
      for (const DType kv : kNarrowTypes) {
        const Shape shape{.heads = 4, .head_size = head_size, .block_size = block_size, .kv = kv};
        expect(shape, {{200, 70}, {block_size, 5}, {block_size + 1, 1}, {300, 40}, {3, 2}}, 0);
      }
    }
  }
}

/// More tiles than multiprocessors, sequences of all lengths: the blocks take tiles in any order, the results stay the same.
TEST_F(CudaAttention, TakesTileAfterTile) {
  for (const auto& [head_size, kv] : kHeadsAndTypes) {
    const Shape shape{.heads = 4, .head_size = head_size, .kv = kv};
    std::vector<CudaSequence> sequences{{0, 1}};
    for (int32_t i = 0; i < 100; ++i) {
      const int32_t context = 1 + i * 37 % 150;
      sequences.push_back({context, 1 + i * 53 % context});
    }
    AttentionStep step(shape, sequences, 0);
    step.launch();
    step.check();
    const std::vector<float> first = step.values();
    for (int i = 0; i < 10; ++i)
      step.launch();
    EXPECT_EQ(step.values(), first);
  }
}

/// Draft tokens: decoding with several tokens a sequence.
TEST_F(CudaAttention, ACapturedGraphOfSeveralTokensServesOtherContexts) {
  for (const DType kv : {DType::bf16, DType::f16, DType::f8_e4m3}) {
    const Shape shape{.kv = kv};
    AttentionStep step(shape, {{3, 3}, {5, 5}, {200, 40}}, 3, 3000);
    const cuda::GraphExec graph = step.run().capture([&] { step.launch(); });
    for (const std::vector<CudaSequence>& sequences :
         {std::vector<CudaSequence>{{3, 3}, {5, 5}, {200, 40}}, {{3000, 3}, {128, 5}, {40, 40}}}) {
      step.assign(sequences);
      step.run().replay(graph);
      step.check();
    }
  }
}

TEST_F(CudaAttention, MixesDecodeAndPrefill) {
  Shape shape;
  expect(shape, {{300, 1}, {1, 1}, {700, 1}, {40, 40}, {1000, 33}, {5, 2}, {17, 1}}, 3);
  expect(shape, {{300, 3}, {5, 5}, {700, 1}, {40, 40}}, 3);  // draft tokens: several a sequence
}

/// The general kernel serves a cache in f32.
TEST_F(CudaAttention, WritesFp8) {
  for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
    for (const int32_t group : {1, 4, 7}) {
      const Shape shape{.heads = 2 * group, .kv = kv, .out = DType::fp8};
      expect(shape, kDecode, static_cast<int32_t>(kDecode.size()));
      expect(shape, {{4097, 1}, {1, 1}, {129, 129}, {1, 1}, {65, 1}, {200, 70}, {64, 64}}, 2);
    }
  }
}

/// More tokens than a grid has blocks in y or z.
TEST_F(CudaAttention, TakesMoreThan65535Tokens) {
  Shape shape{.heads = 2, .kv_heads = 1, .head_size = 8, .qkv = DType::f32, .kv = DType::f32};
  expect(shape, std::vector<CudaSequence>(700, {100, 100}), 0);
  shape = {.heads = 2, .kv_heads = 1, .head_size = 64};
  expect(shape, std::vector<CudaSequence>(2200, {30, 30}), 0);
}

TEST_F(CudaAttention, WritesOnlyTheNamedSequences) {
  for (const DType qkv : {DType::f32, DType::bf16}) {
    Shape shape;
    shape.qkv = qkv;
    AttentionStep step(shape, {{20, 2}, {30, 3}, {5, 1}}, 0);
    step.attend(1, 1);
    const std::vector<float> values = step.values();
    for (int64_t i = 0; i < std::ssize(values); ++i) {
      const int64_t token = i / shape.q_cols();
      ASSERT_EQ(std::isnan(values[static_cast<size_t>(i)]), token < 2 || token > 4) << "token " << token;
    }
  }
}

TEST_F(CudaAttention, ACapturedGraphServesOtherContexts) {
  for (const DType kv : {DType::bf16, DType::f8_e4m3}) {
    Shape shape;
    shape.kv = kv;
    AttentionStep step(shape, {{1, 1}, {2, 1}, {3, 1}, {0, 1}}, 4, 3000);
    const cuda::GraphExec graph = step.run().capture([&] { step.launch(); });
    for (const std::vector<CudaSequence>& sequences :
         {std::vector<CudaSequence>{{1, 1}, {2, 1}, {3, 1}, {0, 1}},
          {{3000, 1}, {17, 1}, {64, 1}, {1, 1}},
          {{0, 1}, {0, 1}, {0, 1}, {0, 1}},
          {{5, 1}, {2999, 1}, {0, 1}, {555, 1}}}) {
      step.assign(sequences);
      step.run().replay(graph);
      step.check();
    }
  }
}

TEST_F(CudaAttention, GivesTheSameBitsEveryTime) {
  for (const int32_t head_size : cuda::kTensorCoreHeads) {
    AttentionStep step({.head_size = head_size},
                       {{4097, 1}, {300, 1}, {17, 1}, {2000, 1}, {100, 100}, {2000, 300}}, 4);
    step.launch();
    const std::vector<float> first = step.values();
    for (int i = 0; i < 20; ++i)
      step.launch();
    EXPECT_EQ(step.values(), first) << head_size;
  }
}

}  // namespace
}  // namespace minfer
