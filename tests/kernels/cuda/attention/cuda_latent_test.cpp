// Latent attention on a GPU: its cache writes, its products of single heads, attention over rows that contain their values.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/product/head_product.h"
#include "tests/support/cuda/cuda_attention_step.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_weight.h"
#include "tests/support/latent_kv.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/rounding_limit.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaAttentionShape;
using test::CudaAttentionStep;
using test::CudaPagedBatch;
using test::CudaPagedCache;
using test::CudaSequence;
using test::CudaTensor;
using test::LatentKvCase;

class CudaLatent : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

template <class T>
std::span<const T> row_of(const std::vector<T>& values, int64_t row, int64_t cols) {
  return std::span(values).subspan(static_cast<size_t>(row * cols), static_cast<size_t>(cols));
}

void expect_latent_kv(const LatentKvCase& c, DType q_type) {
  const std::vector<CudaSequence> sequences{{100, 1}, {0, 1}, {17, 17}, {1, 1}, {40, 5}};
  const CudaPagedBatch batch(sequences, 2, c.block_size, 3);
  const int32_t tokens = batch.batch().num_tokens;
  const CudaPagedCache k(batch, c.kv, 1, c.row_size());
  const std::vector<float> q_values = test::normal_values(tokens * c.q_cols(), 5);
  const std::vector<float> kv_values = test::normal_values(int64_t{tokens} * c.row_size(), 6);
  const CudaTensor q(DType::f32, tokens, c.q_cols(), q_values);
  const CudaTensor kv(DType::f32, tokens, c.row_size(), kv_values);
  const CudaTensor q_out(q_type, tokens, c.out_cols());
  const CudaArray<float> angles(c.angles()), norm(c.norm());
  LatentKvWriteArgs args{.q = q.tensor(),
                         .kv = kv.tensor(),
                         .q_out = q_out.tensor(),
                         .heads = c.heads,
                         .rotary_size = c.rotary_size,
                         .pairing = c.pairing,
                         .cos_sin = c.rotates ? angles.data() : nullptr,
                         .kv_norm = {.data = norm.data(), .rows = 1, .cols = c.latent_size},
                         .norm_eps = LatentKvCase::kEps,
                         .kv_layer = {k.data(), k.data(), c.kv, batch.num_blocks(), c.block_size, 1,
                                      c.row_size(), c.latent_size, true}};
  const CudaArray<float> q_scale(c.q_scales());
  if (c.scales_q) args.q_scale = q_scale.data();
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  cuda::latent_kv_write(launch, batch.batch(), args);
  run.wait();

  const std::string what =
      fmt::format("{} heads, {} + {} of {} + {}, q {}, cache {}, block {}", c.heads, c.latent_size,
                  c.rotary_size, c.other_size, c.rotary_size, name(q_type), name(c.kv), c.block_size);
  EXPECT_TRUE(q.intact() && kv.intact() && q_out.intact()) << what;
  const std::vector<float> out = q_out.values(), left = q.values();
  std::vector<float> rows, queries;
  std::vector<double> expected_rows, expected_queries;
  std::vector<int32_t> written;
  const auto append = [](auto& all, const auto& values) {
    all.insert(all.end(), values.begin(), values.end());
  };
  int32_t token = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int32_t i = 0; i < sequences[s].queries; ++i, ++token) {
      const int32_t position = std::max(0, sequences[s].context - sequences[s].queries + i);
      append(queries, c.others<float>(row_of(left, token, c.q_cols())));
      append(queries, c.written(row_of(out, token, c.out_cols())));
      append(expected_queries, c.queries(row_of(q_values, token, c.q_cols()), position));
      if (sequences[s].context == 0) continue;
      written.push_back(batch.slot(s, position));
      append(rows, k.row(written.back()));
      append(expected_rows, c.row(row_of(kv_values, token, c.row_size()), position));
    }
  }
  EXPECT_TRUE(k.unchanged(written)) << "wrote to slots of other tokens: " << what;
  EXPECT_LT(test::nmse(rows, expected_rows), test::rounding_limit(c.kv)) << what;
  EXPECT_LT(test::nmse(queries, expected_queries), test::rounding_limit(q_type)) << what;
}

TEST_F(CudaLatent, WritesWhatTheReferenceDoes) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const auto& [latent, rotary] : {std::pair{24, 8}, {512, 64}, {17, 2}, {1, 30}})
      expect_latent_kv({.latent_size = latent, .rotary_size = rotary, .pairing = pairing}, DType::f32);
  }
  for (const int32_t heads : {1, 16, 128})
    expect_latent_kv({.heads = heads, .latent_size = 512, .rotary_size = 64, .other_size = 128}, DType::bf16);
}

/// As in Kimi Linear.
TEST_F(CudaLatent, RotatesNothingWithoutAngles) {
  for (const DType type : {DType::f32, DType::bf16})
    expect_latent_kv({.latent_size = 512, .rotary_size = 64, .other_size = 128, .rotates = false}, type);
}

/// As in Mistral 4: the elements that are not rotated too, where they lie.
TEST_F(CudaLatent, ScalesQueriesByTheirPositions) {
  for (const int32_t other : {0, 12, 128}) {
    for (const DType q : {DType::f32, DType::bf16})
      expect_latent_kv({.heads = 5, .rotary_size = 64, .other_size = other, .scales_q = true}, q);
  }
}

TEST_F(CudaLatent, WritesAnyBlockSizeAndType) {
  for (const int32_t block_size : {1, 12, 16, 1024}) {
    for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
      for (const DType q : {DType::f32, DType::bf16})
        expect_latent_kv({.kv = kv, .block_size = block_size}, q);
    }
  }
}

/// Tests x and out with columns between the heads that are neither read nor written.
void expect_head_product(DType dtype, DType x_type, DType out_type, int64_t heads, int64_t rows, int64_t cols,
                         int64_t tokens, int64_t x_gap = 4, int64_t out_gap = 2) {
  const test::CudaWeight weight(dtype, heads, rows, cols, 1);
  const int64_t x_cols = heads * (cols + x_gap), out_cols = heads * (rows + out_gap);
  std::vector<float> values = test::rounded(test::normal_values(tokens * x_cols, 2), x_type);
  for (size_t i = 0; i < values.size(); ++i) {
    if (static_cast<int64_t>(i) % (cols + x_gap) >= cols) values[i] = NAN;
  }
  const CudaTensor x(x_type, tokens, x_cols, values), out(out_type, tokens, out_cols);
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  cuda::head_product(launch, {.x = x.tensor(), .weight = weight.weight(), .out = out.tensor()});
  run.wait();
  const std::string what = fmt::format("{} x [{}, {}] {}, {} tokens, x {}, out {}", heads, rows, cols,
                                       name(dtype), tokens, name(x_type), name(out_type));
  EXPECT_TRUE(x.intact() && out.intact()) << what;
  std::vector<float> found;
  std::vector<double> expected;
  const std::vector<float> all = out.values();
  const std::vector<reference::Matrix> matrices = weight.matrices();
  for (int64_t h = 0; h < heads; ++h) {
    reference::Matrix of_head(tokens, cols);
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < cols; ++i) {
        const float value = values[static_cast<size_t>(t * x_cols + h * (cols + x_gap) + i)];
        of_head.at(t, i) = static_cast<double>(value);
      }
      for (int64_t i = 0; i < rows + out_gap; ++i) {
        const float value = all[static_cast<size_t>(t * out_cols + h * (rows + out_gap) + i)];
        if (i < rows) {
          found.push_back(value);
        } else {
          ASSERT_TRUE(std::isnan(value)) << "wrote between heads: " << what;
        }
      }
    }
    const reference::Matrix product = reference::linear(of_head, matrices[static_cast<size_t>(h)]);
    expected.insert(expected.end(), product.data.begin(), product.data.end());
  }
  EXPECT_LT(test::nmse(found, expected), out_type == DType::f32 ? 1e-11 : 2e-5) << what;
}

TEST_F(CudaLatent, ProductsOfHeadsOfEveryType) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q4_0, DType::q8_0, DType::q4_k,
                            DType::q6_k, DType::mxfp4}) {
    const int64_t cols = is_quantised(dtype) ? 256 : 192;
    for (const int64_t tokens : {1, 33}) {
      expect_head_product(dtype, DType::f32, DType::f32, 3, 77, cols, tokens);
      expect_head_product(dtype, DType::bf16, DType::bf16, 3, 77, cols, tokens);
      expect_head_product(dtype, DType::f32, DType::bf16, 3, 77, cols, tokens);
    }
  }
}

TEST_F(CudaLatent, ProductsOfHeadsOfEverySize) {
  for (const int64_t tokens : {1, 2, 8, 31, 32, 33, 64, 130}) {
    expect_head_product(DType::bf16, DType::f32, DType::bf16, 16, 512, 128, tokens, 64, 64);
    expect_head_product(DType::bf16, DType::bf16, DType::bf16, 16, 128, 512, tokens, 0, 0);
  }
  for (const auto& [rows, cols] :
       {std::pair<int64_t, int64_t>{1, 1}, {63, 129}, {65, 127}, {24, 12}, {20, 24}}) {
    expect_head_product(DType::bf16, DType::bf16, DType::bf16, 2, rows, cols, 5, 1, 3);
    expect_head_product(DType::f16, DType::f32, DType::bf16, 2, rows, cols, 40, 3, 1);
    expect_head_product(DType::f32, DType::f32, DType::f32, 2, rows, cols, 11, 1, 3);
  }
}

TEST_F(CudaLatent, RefusesHeadsThatAreTooNarrow) {
  const test::CudaWeight weight(DType::bf16, 3, 21, 64, 1);
  const CudaTensor x(DType::bf16, 1, 3 * 63), out(DType::bf16, 1, 3 * 21);
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  EXPECT_THROW(cuda::head_product(launch, {.x = x.tensor(), .weight = weight.weight(), .out = out.tensor()}),
               Error);
}

CudaAttentionShape latent_shape(int32_t heads, DType kv = DType::bf16) {
  return {.heads = heads, .kv_heads = 1, .head_size = 576, .kv = kv, .v_head_size = 512, .v_in_k = true};
}

/// The first `num_decode` sequences decode.
void expect_attention(const CudaAttentionShape& shape, const std::vector<CudaSequence>& sequences,
                      int32_t num_decode) {
  CudaAttentionStep step(shape, sequences, num_decode);
  step.launch();
  step.check();
}

const std::vector<CudaSequence> kLatentOneByOne{{1, 1},  {15, 1}, {16, 1},   {0, 1},   {17, 1},  {64, 1},
                                                {65, 1}, {63, 1}, {1025, 1}, {128, 1}, {129, 1}, {3000, 1}};
const std::vector<CudaSequence> kLatentPrompts{{150, 150}, {300, 17}, {2, 2}, {1, 1}, {64, 64}, {513, 40}};

TEST_F(CudaLatent, Decodes) {
  for (const DType kv : {DType::bf16, DType::f16}) {
    for (const int32_t heads : {1, 15, 16, 20, 33, 64, 128}) {
      expect_attention(latent_shape(heads, kv), kLatentOneByOne,
                       static_cast<int32_t>(kLatentOneByOne.size()));
      expect_attention(latent_shape(heads, kv), {{5000, 1}}, 1);  // keys in many parts
    }
  }
}

TEST_F(CudaLatent, DecodesMoreSequencesThanTheDeviceHasProcessors) {
  std::vector<CudaSequence> sequences;
  for (int32_t i = 0; i < 300; ++i)
    sequences.push_back({1 + i, 1});
  expect_attention(latent_shape(16), sequences, 300);
}

TEST_F(CudaLatent, PrefillsAndChecksDrafts) {
  for (const DType kv : {DType::bf16, DType::f16}) {
    for (const int32_t heads : {3, 16, 128}) {
      expect_attention(latent_shape(heads, kv), kLatentPrompts, 0);
      expect_attention(latent_shape(heads, kv), {{100, 3}, {1, 1}, {700, 5}, {0, 1}}, 4);
    }
  }
}

TEST_F(CudaLatent, ReadsBlocksOfEverySize) {
  for (const int32_t block_size : {1, 12, 32, 256}) {
    CudaAttentionShape shape = latent_shape(16);
    shape.block_size = block_size;
    std::vector<CudaSequence> sequences = kLatentOneByOne;
    sequences.push_back({200, 100});
    expect_attention(shape, sequences, static_cast<int32_t>(kLatentOneByOne.size()));
  }
}

/// By the general kernel: other types and sizes, and cases that the other kernel does not take.
TEST_F(CudaLatent, OtherTypesAndSizes) {
  for (const auto& [head_size, value_size] : {std::pair{576, 512}, {40, 24}, {640, 600}}) {
    for (const DType kv : {DType::f32, DType::f16, DType::bf16, DType::f8_e4m3}) {
      for (const DType qkv : {DType::f32, DType::bf16}) {
        CudaAttentionShape shape = latent_shape(5, kv);
        shape.head_size = head_size;
        shape.v_head_size = value_size;
        shape.qkv = shape.out = qkv;
        expect_attention(shape, {{300, 1}, {1, 1}, {0, 1}, {40, 40}, {200, 33}}, 3);
      }
    }
  }
  CudaAttentionShape shape = latent_shape(16);
  shape.options = {.window = 50};
  expect_attention(shape, {{300, 1}, {1, 1}, {40, 40}}, 2);
}

TEST_F(CudaLatent, ACapturedGraphServesOtherContexts) {
  CudaAttentionStep step(latent_shape(16), {{1, 1}, {2, 1}, {3, 1}, {0, 1}, {50, 20}}, 4, 3000);
  const cuda::GraphExec graph = step.run().capture([&] { step.launch(); });
  for (const std::vector<CudaSequence>& sequences :
       {std::vector<CudaSequence>{{1, 1}, {2, 1}, {3, 1}, {0, 1}, {50, 20}},
        {{3000, 1}, {17, 1}, {100, 1}, {1, 1}, {3000, 20}},
        {{0, 1}, {0, 1}, {0, 1}, {0, 1}, {20, 20}}}) {
    step.assign(sequences);
    step.run().replay(graph);
    step.check();
  }
}

TEST_F(CudaLatent, GivesTheSameBitsEveryTime) {
  CudaAttentionStep step(latent_shape(16), {{4097, 1}, {300, 1}, {17, 1}, {100, 100}, {2000, 300}}, 3);
  step.launch();
  const std::vector<float> first = step.values();
  for (int i = 0; i < 20; ++i)
    step.launch();
  EXPECT_EQ(step.values(), first);
}

}  // namespace
}  // namespace minfer
