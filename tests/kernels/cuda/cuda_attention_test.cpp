#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/cuda/fp8_tensor.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::CudaSequence;

struct Shape {
  int32_t heads = 8;
  int32_t kv_heads = 2;
  int32_t head_size = 128;
  int32_t block_size = 16;
  DType qkv = DType::bf16;
  DType kv = DType::bf16;
  DType out = DType::bf16;  ///< with qkv in bf16; or fp8

  int64_t q_cols() const { return int64_t{heads} * head_size; }
  int64_t kv_cols() const { return int64_t{kv_heads} * head_size; }
  int64_t qkv_cols() const { return q_cols() + 2 * kv_cols(); }
};

std::string text(const Shape& shape) {
  return fmt::format("{}/{} heads of {}, block {}, {}, cache {}", shape.heads, shape.kv_heads,
                     shape.head_size, shape.block_size, name(shape.qkv), name(shape.kv));
}

/// The largest NMSE of a sequence that each combination of types may have. bf16: of the output alone 1.3e-6.
double limit_of(const Shape& shape) {
  if (shape.out == DType::fp8) return 1e-3;
  return shape.qkv == DType::f32 ? 1e-12 : 1e-5;
}

/// A step of attention over random data, its decoding sequences first.
class AttentionStep {
 public:
  AttentionStep(const Shape& shape, std::vector<CudaSequence> sequences, int32_t num_decode,
                int32_t max_context = 0)
      : shape_(shape),
        batch_(std::move(sequences), num_decode, shape.block_size, 7, max_context),
        k_(batch_, shape.kv, shape.kv_heads, shape.head_size),
        v_(batch_, shape.kv, shape.kv_heads, shape.head_size),
        ops_(run_.num_sms(), limits()) {
    fill();
  }

  /// Other contexts and other data behind the same pointers.
  void assign(std::vector<CudaSequence> sequences) {
    batch_.assign(std::move(sequences));
    k_.clear();
    v_.clear();
    fill();
  }

  /// The whole step, as the decoder has it: the plan, then a range each for decode and prefill.
  void launch() {
    const ForwardBatch& batch = batch_.batch();
    cuda::Launch plan = run_.launch();
    ops_.plan(plan, batch);
    attend(0, batch.num_decode_sequences);
    attend(batch.num_decode_sequences, batch.num_sequences - batch.num_decode_sequences);
  }
  void attend(int32_t first_sequence, int32_t num_sequences) {
    if (num_sequences == 0) return;
    const AttentionArgs args{.qkv = qkv_->tensor(),
                             .heads = shape_.heads,
                             .scale = scale(),
                             .kv = {k_.data(), v_.data(), shape_.kv, batch_.num_blocks(), shape_.block_size,
                                    shape_.kv_heads, shape_.head_size},
                             .first_sequence = first_sequence,
                             .num_sequences = num_sequences,
                             .out = fp8_out_ ? fp8_out_->tensor() : out_->tensor()};
    cuda::Launch launch = run_.launch();
    ops_.attention(launch, batch_.batch(), args);
  }

  void check() const {
    run_.wait();
    EXPECT_TRUE(out_->intact()) << "wrote around its output: " << text(shape_);
    EXPECT_TRUE(k_.unchanged() && v_.unchanged()) << "wrote to the cache: " << text(shape_);
    const std::vector<float> values = fp8_out_ ? fp8_out_->values() : out_->values();
    size_t next = 0;
    for (size_t s = 0; s < batch_.sequences().size(); ++s) {
      const auto [context, queries] = batch_.sequences()[s];
      const auto rows = std::span(values).subspan(next, static_cast<size_t>(queries * shape_.q_cols()));
      next += rows.size();
      if (context == 0) {
        EXPECT_EQ(std::ranges::count(rows, 0.0f), std::ssize(rows)) << "padding: " << text(shape_);
        continue;
      }
      const double error = test::nmse(rows, expected(s));
      worst_ = std::max(worst_, error);
      EXPECT_LT(error, limit_of(shape_)) << text(shape_) << ", context " << context << ", queries " << queries
                                         << ", sequence " << s << " of " << batch_.sequences().size();
    }
  }
  std::vector<float> values() const {
    run_.wait();
    return out_->values();
  }
  test::CudaRun& run() { return run_; }
  /// The largest NMSE seen by check().
  double worst() const { return worst_; }

 private:
  StepLimits limits() const {
    const ForwardBatch& batch = batch_.batch();
    return {.max_tokens = batch.num_tokens,
            .max_sequences = batch.num_sequences,
            .max_blocks = batch.max_blocks,
            .heads = shape_.heads,
            .kv_heads = shape_.kv_heads,
            .head_size = shape_.head_size};
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_size)); }

  std::vector<float> data(size_t sequence, int part, int64_t count, DType dtype) const {
    return test::rounded(test::normal_values(count, 3 * sequence + static_cast<size_t>(part)), dtype);
  }
  std::vector<float> q_of(size_t s) const {
    return data(s, 0, batch_.sequences()[s].queries * shape_.q_cols(), shape_.qkv);
  }
  std::vector<float> k_of(size_t s) const {
    return data(s, 1, batch_.sequences()[s].context * shape_.kv_cols(), shape_.kv);
  }
  std::vector<float> v_of(size_t s) const {
    return data(s, 2, batch_.sequences()[s].context * shape_.kv_cols(), shape_.kv);
  }

  void fill() {
    std::vector<float> qkv;
    for (size_t s = 0; s < batch_.sequences().size(); ++s) {
      const std::vector<float> q = q_of(s);
      for (auto row = q.begin(); row != q.end(); row += shape_.q_cols()) {
        qkv.insert(qkv.end(), row, row + shape_.q_cols());
        qkv.insert(qkv.end(), static_cast<size_t>(2 * shape_.kv_cols()), NAN);  // not to be read
      }
      k_.store(batch_, s, k_of(s));
      v_.store(batch_, s, v_of(s));
    }
    k_.upload();
    v_.upload();
    if (!qkv_) {
      qkv_.emplace(shape_.qkv, batch_.batch().num_tokens, shape_.qkv_cols(), qkv);
      out_.emplace(shape_.qkv, batch_.batch().num_tokens, shape_.q_cols());
      if (shape_.out == DType::fp8) fp8_out_.emplace(batch_.batch().num_tokens, shape_.q_cols());
    }
  }

  std::vector<double> expected(size_t s) const {
    const auto [context, queries] = batch_.sequences()[s];
    return reference::attention(reference::to_matrix(q_of(s), queries, shape_.q_cols()),
                                reference::to_matrix(k_of(s), context, shape_.kv_cols()),
                                reference::to_matrix(v_of(s), context, shape_.kv_cols()), shape_.head_size,
                                scale())
        .data;
  }

  Shape shape_;
  test::CudaRun run_;
  test::CudaPagedBatch batch_;
  test::CudaPagedCache k_, v_;
  cuda::AttentionOps ops_;
  std::optional<test::CudaTensor> qkv_, out_;
  std::optional<test::Fp8Tensor> fp8_out_;  ///< instead of out_
  mutable double worst_ = 0.0;
};

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
  for (const int32_t head_size : {16, 20, 32, 64, 80, 96, 128, 256}) {
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
  for (const int32_t head_size : {32, 64, 80, 96, 128, 256}) {
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

TEST_F(CudaAttention, DecodesContextsFarApart) {
  Shape shape;
  expect(shape, {{4097, 1}, {1, 1}, {0, 1}, {16, 1}, {2000, 1}, {33, 1}}, 6);
  expect(shape, {{4097, 1}}, 1);
  shape.heads = 8;
  shape.kv_heads = 1;
  expect(shape, {{4097, 1}}, 1);
}

TEST_F(CudaAttention, PrefillsEveryHeadSizeAndType) {
  for (const int32_t head_size : {32, 64, 80, 96, 128, 256}) {
    for (const DType kv : {DType::bf16, DType::f16, DType::f8_e4m3}) {
      Shape shape;
      shape.head_size = head_size;
      shape.kv = kv;
      expect(shape, {{129, 129}, {1, 1}, {65, 1}, {200, 70}, {64, 64}}, 0);
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

/// Around the ends of 128 keys, of cache blocks and of tiles of query tokens, for the whole prompt and for its end.
TEST_F(CudaAttention, PrefillsAroundTheEdgesOfStages) {
  for (const int32_t head_size : {64, 128}) {
    for (const DType kv : {DType::bf16, DType::f16}) {
      const Shape shape{.heads = 4, .kv_heads = 1, .head_size = head_size, .kv = kv};
      std::vector<CudaSequence> whole, ends;
      for (const int32_t context : {1, 16, 31, 32, 33, 127, 128, 129, 143, 255, 256, 257, 384, 385, 513}) {
        whole.push_back({context, context});
        for (const int32_t queries : {1, 2, 31, 33, 100, 129}) {
          if (queries < context) ends.push_back({context, queries});
        }
      }
      expect(shape, whole, 0);
      expect(shape, ends, 0);
    }
  }
}

TEST_F(CudaAttention, PrefillsLongContexts) {
  for (const int32_t head_size : {64, 128}) {
    for (const DType kv : {DType::bf16, DType::f16}) {
      for (const int32_t group : {1, 4, 8}) {
        const Shape shape{.heads = group, .kv_heads = 1, .head_size = head_size, .kv = kv};
        expect(shape, {{5000, 70}, {3, 3}, {300, 300}, {4097, 1}, {2048, 33}}, 0);
      }
    }
  }
}

/// Powers of two from eight on come in boxes of up to 128 keys, 24 and 192 do not.
TEST_F(CudaAttention, PrefillsFromBlocksOfEverySize) {
  for (const int32_t block_size : {8, 24, 32, 64, 128, 192, 256}) {
    for (const DType kv : {DType::bf16, DType::f16}) {
      const Shape shape{.heads = 6, .kv_heads = 3, .block_size = block_size, .kv = kv};
      expect(shape, {{257, 257}, {block_size, 5}, {block_size + 1, 1}, {600, 129}, {3, 2}}, 0);
    }
  }
}

/// More tiles than multiprocessors, of sequences of all lengths: which block takes which is not fixed, the results are.
TEST_F(CudaAttention, TakesTileAfterTile) {
  for (const int32_t head_size : {64, 128}) {
    for (const DType kv : {DType::bf16, DType::f16, DType::f8_e4m3}) {
      const Shape shape{.heads = 8, .kv_heads = 4, .head_size = head_size, .kv = kv};
      std::vector<CudaSequence> sequences{{0, 1}};
      for (int32_t i = 0; i < 100; ++i) {
        const int32_t context = 1 + i * 37 % 300;
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
}

/// Draft tokens: decoding, but not by one.
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
  expect(shape, {{300, 3}, {5, 5}, {700, 1}, {40, 40}}, 3);  // draft tokens: decoding, but not by one
}

/// With a cache in f32 the general kernel.
TEST_F(CudaAttention, WritesFp8) {
  for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
    for (const int32_t group : {1, 4, 7}) {
      const Shape shape{.heads = 2 * group, .kv = kv, .out = DType::fp8};
      expect(shape, kDecode, static_cast<int32_t>(kDecode.size()));
      expect(shape, {{4097, 1}, {1, 1}, {129, 129}, {1, 1}, {65, 1}, {200, 70}, {64, 64}}, 2);
    }
  }
}

/// More than a grid has blocks in y or z.
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
  AttentionStep step({}, {{4097, 1}, {300, 1}, {17, 1}, {2000, 1}, {100, 100}, {2000, 300}}, 4);
  step.launch();
  const std::vector<float> first = step.values();
  for (int i = 0; i < 20; ++i)
    step.launch();
  EXPECT_EQ(step.values(), first);
}

}  // namespace
}  // namespace minfer
