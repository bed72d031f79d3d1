#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_paged_batch.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"
#include "tests/support/rounding_limit.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaPagedBatch;
using test::CudaPagedCache;
using test::CudaTensor;

constexpr float kNormEps = 1e-5f;
constexpr int32_t kPositions = 200;

struct RopeCase {
  int32_t heads = 4;
  int32_t kv_heads = 2;
  int32_t head_size = 64;
  int32_t rotary_size = 64;
  int32_t block_size = 16;
  RopePairing pairing = RopePairing::interleaved;
  DType q = DType::f32;  ///< f32: in place
  DType kv = DType::f32;
  bool norms = false;
  bool layer_norms = false;  ///< with weights for each head
  bool many = false;         ///< many tokens: a warp takes several heads
  bool scales_q = false;     ///< by position
  bool norms_values = false;
  bool v_is_k = false;
  bool q_has_gate = false;
  bool norms_last = false;  ///< behind the rotation
  bool keys_alone = false;  ///< the cache has no values
};

std::vector<float> make_angles(int32_t rotary_size) {
  std::vector<float> cos_sin;
  for (int32_t p = 0; p < kPositions; ++p) {
    for (int32_t i = 0; i < rotary_size / 2; ++i) {
      const double angle = p * std::pow(10000.0, -2.0 * i / rotary_size);
      cos_sin.push_back(static_cast<float>(std::cos(angle)));
      cos_sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return cos_sin;
}

/// The heads [first, first + count) of a token's row.
reference::Matrix heads_of(const RopeCase& rope, std::span<const float> row, int32_t first, int32_t count) {
  const auto heads =
      row.subspan(static_cast<size_t>(first * rope.head_size), static_cast<size_t>(count * rope.head_size));
  return reference::to_matrix(heads, count, rope.head_size);
}

/// Normalises heads in double if there is a norm.
reference::Matrix normed(const RopeCase& rope, reference::Matrix x, std::span<const float> norm) {
  const auto count = static_cast<int32_t>(x.rows);
  if (norm.empty() || !rope.layer_norms) return norm.empty() ? x : reference::rms_norm(x, norm, kNormEps);
  const auto size = static_cast<size_t>(rope.head_size);
  for (size_t h = 0; h < static_cast<size_t>(count); ++h) {
    const std::span<double> head = std::span(x.data).subspan(h * size, size);
    const double mean = std::accumulate(head.begin(), head.end(), 0.0) / rope.head_size;
    reference::Matrix centred(1, rope.head_size);
    std::ranges::transform(head, centred.data.begin(), [mean](double element) { return element - mean; });
    std::ranges::copy(reference::rms_norm(centred, norm.subspan(h * size, size), kNormEps).data,
                      head.begin());
  }
  return x;
}

/// Heads of q or k, normalised and rotated.
std::vector<double> expected_heads(const RopeCase& rope, std::span<const float> row, int32_t first,
                                   int32_t count, std::span<const float> norm,
                                   std::span<const float> angles) {
  reference::Matrix x = heads_of(rope, row, first, count);
  if (!rope.norms_last) x = normed(rope, x, norm);
  for (int32_t h = 0; h < count; ++h) {
    reference::rotate_head(std::span(x.data).subspan(static_cast<size_t>(h * rope.head_size),
                                                     static_cast<size_t>(rope.rotary_size)),
                           angles, rope.pairing);
  }
  return rope.norms_last ? normed(rope, x, norm).data : x.data;
}

void append(std::vector<float>& all, std::span<const float> values) {
  all.insert(all.end(), values.begin(), values.end());
}
void append(std::vector<double>& all, std::span<const double> values) {
  all.insert(all.end(), values.begin(), values.end());
}

void expect_rope(const RopeCase& rope) {
  std::vector<test::CudaSequence> sequences{{100, 1}, {0, 1}, {17, 17}, {1, 1}, {40, 5}};
  if (rope.many) sequences.insert(sequences.end(), {{180, 150}, {kPositions, kPositions}});
  const CudaPagedBatch batch(sequences, 2, rope.block_size, 3);
  const int32_t tokens = batch.batch().num_tokens;
  const int32_t heads_and_gates = (rope.q_has_gate ? 2 : 1) * rope.heads;
  const int64_t cols =
      int64_t{heads_and_gates + (rope.v_is_k || rope.keys_alone ? 1 : 2) * rope.kv_heads} * rope.head_size;
  const std::vector<float> angles = make_angles(rope.rotary_size);
  const int32_t q_norms = !rope.norms ? 0 : rope.layer_norms ? rope.heads : 1;
  const int32_t k_norms = !rope.norms ? 0 : rope.layer_norms ? rope.kv_heads : 1;
  const std::vector<float> q_norm = test::normal_values(q_norms * rope.head_size, 11);
  const std::vector<float> k_norm = test::normal_values(k_norms * rope.head_size, 12);
  const std::vector<float> v_norm = test::normal_values(rope.norms_values ? rope.head_size : 0, 14);
  const std::vector<float> input = test::normal_values(tokens * cols, 5);

  const CudaPagedCache k(batch, rope.kv, rope.kv_heads, rope.head_size);
  const CudaPagedCache v(batch, rope.kv, rope.kv_heads, rope.head_size);
  const CudaTensor qkv(DType::f32, tokens, cols, input);
  const int64_t q_cols = int64_t{rope.heads} * rope.head_size;
  const CudaTensor q_out(rope.q, tokens, q_cols);
  const bool in_place = rope.q == DType::f32 && !rope.q_has_gate;
  const CudaArray<float> cos_sin(angles), device_q_norm(q_norm), device_k_norm(k_norm), device_v_norm(v_norm);
  RopeKvWriteArgs args;
  args.qkv = qkv.tensor();
  if (!in_place) args.q_out = q_out.tensor();
  args.heads = rope.heads;
  args.rotary_size = rope.rotary_size;
  args.pairing = rope.pairing;
  args.cos_sin = cos_sin.data();
  args.norm_eps = kNormEps;
  args.kv = {k.data(), v.data(), rope.kv, batch.num_blocks(), rope.block_size, rope.kv_heads, rope.head_size};
  if (rope.keys_alone) {
    args.kv.v = args.kv.k;
    args.kv.v_in_k = true;
  }
  if (rope.norms) {
    args.q_norm = {.data = device_q_norm.data(), .rows = q_norms, .cols = rope.head_size};
    args.k_norm = {.data = device_k_norm.data(), .rows = k_norms, .cols = rope.head_size};
    args.layer_norms = rope.layer_norms;
  }
  if (rope.norms_values) args.v_norm = {.data = device_v_norm.data(), .rows = 1, .cols = rope.head_size};
  args.v_is_k = rope.v_is_k;
  args.q_has_gate = rope.q_has_gate;
  args.norms_last = rope.norms_last;
  const std::vector<float> scales = test::normal_values(kPositions, 13);
  const CudaArray<float> q_scale(scales);
  if (rope.scales_q) args.q_scale = q_scale.data();
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  cuda::rope_kv_write(launch, batch.batch(), args);
  run.wait();

  const std::string what = fmt::format(
      "{} heads of {}, {} rotated, {}, block {}, q {}, cache {}, norms {}{}, of values {}{}{}", rope.heads,
      rope.head_size, rope.rotary_size, rope.pairing == RopePairing::halves ? "halves" : "interleaved",
      rope.block_size, name(rope.q), name(rope.kv), rope.norms, rope.norms_last ? " last" : "",
      rope.norms_values, rope.v_is_k ? ", which are keys" : "", rope.q_has_gate ? ", gates" : "");
  EXPECT_TRUE(qkv.intact() && q_out.intact()) << what;
  const std::vector<float> output = in_place ? qkv.values() : q_out.values();
  const int64_t output_cols = in_place ? cols : q_cols;
  std::vector<float> q_found, k_found, v_found;
  std::vector<double> q_expected, k_expected, v_expected;
  std::vector<int32_t> written;
  int32_t token = 0;
  for (size_t s = 0; s < sequences.size(); ++s) {
    for (int32_t i = 0; i < sequences[s].queries; ++i, ++token) {
      const auto row = std::span(input).subspan(static_cast<size_t>(token * cols), static_cast<size_t>(cols));
      const int32_t position = std::max(0, sequences[s].context - sequences[s].queries + i);
      const auto turn = std::span(angles).subspan(static_cast<size_t>(position * rope.rotary_size),
                                                  static_cast<size_t>(rope.rotary_size));
      append(q_found, std::span(output).subspan(static_cast<size_t>(token * output_cols),
                                                static_cast<size_t>(rope.heads * rope.head_size)));
      std::vector<double> q;
      const auto norm_of = [&](int32_t head) {
        const auto size = static_cast<size_t>(rope.head_size);
        return rope.layer_norms ? std::span(q_norm).subspan(static_cast<size_t>(head) * size, size)
                                : std::span(q_norm);
      };
      for (int32_t h = 0; h < rope.heads; ++h)
        append(q, expected_heads(rope, row, rope.q_has_gate ? 2 * h : h, 1, norm_of(h), turn));
      for (double& element : q)
        element *= rope.scales_q ? scales[static_cast<size_t>(position)] : 1.0f;
      append(q_expected, q);
      if (sequences[s].context == 0) continue;
      written.push_back(batch.slot(s, position));
      append(k_found, k.row(written.back()));
      append(k_expected, expected_heads(rope, row, heads_and_gates, rope.kv_heads, k_norm, turn));
      if (rope.keys_alone) continue;
      append(v_found, v.row(written.back()));
      const int32_t first_value = heads_and_gates + (rope.v_is_k ? 0 : rope.kv_heads);
      append(v_expected, normed(rope, heads_of(rope, row, first_value, rope.kv_heads), v_norm).data);
    }
  }
  const std::vector<int32_t> of_values = rope.keys_alone ? std::vector<int32_t>{} : written;
  EXPECT_TRUE(k.unchanged(written) && v.unchanged(of_values)) << "wrote to slots of other tokens: " << what;
  if (rope.heads > 0) {
    EXPECT_LT(test::nmse(q_found, q_expected), test::rounding_limit(rope.q)) << "q: " << what;
  }
  EXPECT_LT(test::nmse(k_found, k_expected), test::rounding_limit(rope.kv)) << "k: " << what;
  if (!rope.keys_alone) {
    EXPECT_LT(test::nmse(v_found, v_expected), test::rounding_limit(rope.kv)) << "v: " << what;
  }
}

class CudaRope : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaRope, MatchesTheReference) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const int32_t head_size : {16, 20, 64, 80, 128, 256, 260, 512}) {
      for (const bool norms : {false, true}) {
        RopeCase rope;
        rope.head_size = rope.rotary_size = head_size;
        rope.pairing = pairing;
        rope.norms = norms;
        expect_rope(rope);
        rope.many = true;
        expect_rope(rope);
      }
    }
  }
}

/// Keys by which others are chosen (DeepSeek V3.2): with heads of queries or alone.
TEST_F(CudaRope, WritesKeysToACacheWithoutValues) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const auto& [heads, head_size] : {std::pair{64, 128}, {0, 128}, {3, 20}, {0, 20}}) {
      for (const bool many : {false, true}) {
        RopeCase rope{.heads = heads,
                      .kv_heads = 1,
                      .head_size = head_size,
                      .rotary_size = 16,
                      .pairing = pairing,
                      .many = many,
                      .keys_alone = true};
        expect_rope(rope);
        rope.kv = DType::bf16;
        if (heads > 0) rope.q = DType::bf16;
        expect_rope(rope);
      }
    }
  }
}

/// As in Command-R+ and StableLM 2 12B.
TEST_F(CudaRope, TakesLayerNormsWithWeightsForEachHead) {
  for (const int32_t head_size : {20, 128, 160, 260}) {
    for (const bool many : {false, true}) {
      RopeCase rope{
          .head_size = head_size, .rotary_size = 20, .norms = true, .layer_norms = true, .many = many};
      expect_rope(rope);
      rope.q = rope.kv = DType::bf16;
      expect_rope(rope);
    }
  }
}

/// As in Hunyuan. The weights differ from element to element, so the order matters.
TEST_F(CudaRope, NormsBehindTheRotation) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const int32_t head_size : {20, 64, 128, 260}) {
      for (const bool layer_norms : {false, true}) {
        RopeCase rope{.head_size = head_size, .rotary_size = 20, .norms = true, .layer_norms = layer_norms};
        rope.pairing = pairing;
        rope.scales_q = rope.norms_last = true;
        rope.norms_values = !layer_norms;
        expect_rope(rope);
        rope.q = rope.kv = DType::bf16;
        rope.many = true;
        expect_rope(rope);
      }
    }
  }
}

TEST_F(CudaRope, LeavesTheRestOfAHeadThatIsRotatedInPart) {
  for (const RopePairing pairing : {RopePairing::interleaved, RopePairing::halves}) {
    for (const int32_t rotary_size : {0, 4, 20, 32, 60}) {
      RopeCase rope;
      rope.rotary_size = rotary_size;
      rope.pairing = pairing;
      rope.norms = true;
      expect_rope(rope);
    }
  }
}

TEST_F(CudaRope, NormsValuesAndTakesKeysForThem) {
  for (const int32_t head_size : {64, 128, 256, 512}) {
    for (const DType kv : {DType::f32, DType::bf16, DType::f8_e4m3}) {
      for (const bool norms_values : {false, true}) {
        for (const bool v_is_k : {false, true}) {
          RopeCase rope{.kv_heads = 3, .head_size = head_size, .rotary_size = head_size, .norms = true};
          rope.pairing = RopePairing::halves;
          rope.kv = kv;
          rope.norms_values = norms_values;
          rope.v_is_k = v_is_k;
          expect_rope(rope);
          rope.q = DType::bf16;
          rope.many = true;
          expect_rope(rope);
        }
      }
    }
  }
}

TEST_F(CudaRope, LeavesGatesBehindHeadsOfQueries) {
  for (const int32_t head_size : {16, 64, 256, 512}) {
    for (const DType q : {DType::f32, DType::bf16}) {
      for (const bool v_is_k : {false, true}) {
        RopeCase rope{.head_size = head_size, .rotary_size = head_size / 4, .norms = true};
        rope.pairing = RopePairing::halves;
        rope.q = q;
        rope.v_is_k = v_is_k;
        rope.q_has_gate = true;
        expect_rope(rope);
        rope.many = true;
        expect_rope(rope);
      }
    }
  }
}

TEST_F(CudaRope, ScalesQueriesByTheirPositions) {
  for (const int32_t rotary_size : {0, 64}) {
    for (const DType q : {DType::f32, DType::bf16}) {
      RopeCase rope;
      rope.rotary_size = rotary_size;
      rope.q = q;
      rope.norms = rotary_size > 0;
      rope.scales_q = true;
      expect_rope(rope);
      rope.many = true;
      expect_rope(rope);
    }
  }
}

TEST_F(CudaRope, WritesAnyBlockSizeAndType) {
  for (const int32_t block_size : {1, 8, 12, 16, 1024}) {
    for (const DType q : {DType::f32, DType::bf16}) {
      for (const DType kv : {DType::f32, DType::bf16, DType::f16, DType::f8_e4m3}) {
        RopeCase rope;
        rope.heads = 7;
        rope.kv_heads = 1;
        rope.block_size = block_size;
        rope.q = q;
        rope.kv = kv;
        expect_rope(rope);
        rope.many = true;
        expect_rope(rope);
      }
    }
  }
}

TEST_F(CudaRope, SaturatesInFp8) {
  const CudaPagedBatch batch({{1, 1}}, 1, 16, 3);
  const CudaPagedCache k(batch, DType::f8_e4m3, 1, 16);
  const CudaPagedCache v(batch, DType::f8_e4m3, 1, 16);
  const CudaTensor qkv(DType::f32, 1, 48, std::vector<float>(48, -1e6f));
  RopeKvWriteArgs args;
  args.qkv = qkv.tensor();
  args.heads = 1;
  args.kv = {k.data(), v.data(), DType::f8_e4m3, batch.num_blocks(), 16, 1, 16};
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  cuda::rope_kv_write(launch, batch.batch(), args);
  run.wait();
  EXPECT_EQ(k.row(batch.slot(0, 0)), std::vector<float>(16, -448.0f));
  EXPECT_EQ(v.row(batch.slot(0, 0)), std::vector<float>(16, -448.0f));
}

TEST_F(CudaRope, RefusesSizesItCannotVectorise) {
  const CudaPagedBatch batch({{1, 1}}, 1, 16, 3);
  const CudaTensor qkv(DType::f32, 1, 3 * 18);
  RopeKvWriteArgs args;
  args.qkv = qkv.tensor();
  args.heads = 1;
  args.rotary_size = 16;
  args.kv = {nullptr, nullptr, DType::f32, batch.num_blocks(), 16, 1, 18};
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  EXPECT_THROW(cuda::rope_kv_write(launch, batch.batch(), args), Error);
}

TEST_F(CudaRope, RefusesValuesOfAnotherSizeByName) {
  const CudaPagedBatch batch({{1, 1}}, 1, 16, 3);
  const CudaTensor qkv(DType::f32, 1, 3 * 16);
  RopeKvWriteArgs args;
  args.qkv = qkv.tensor();
  args.heads = 1;
  args.kv = {nullptr, nullptr, DType::f32, batch.num_blocks(), 16, 1, 16, 8};
  const test::CudaRun run;
  cuda::Launch launch = run.launch();
  try {
    cuda::rope_kv_write(launch, batch.batch(), args);
    FAIL() << "nothing thrown";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "rope_kv_write on CUDA: expected values of the head size, 16, found 8");
  }
}

}  // namespace
}  // namespace minfer
