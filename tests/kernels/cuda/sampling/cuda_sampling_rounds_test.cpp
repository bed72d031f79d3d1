// More rows than the GPU draws at once: clusters take one after the other.
#include <algorithm>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_sampler.h"
#include "tests/support/random_data.h"
#include "tests/support/random_rows.h"
#include "tests/support/token_masks.h"

namespace minfer {
namespace {

using test::CudaSampler;
using test::CudaTensor;

/// So few rows that each has a cluster of large blocks, on any GPU.
constexpr int64_t kFewRows = 2;

class CudaSamplingRounds : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// Expects the same bits.
void expect_same(const SamplingRow& row, const SampledToken& found, const SampledToken& expected,
                 const std::string& what) {
  EXPECT_EQ(found.token, expected.token) << what;
  if (row.top_logprobs < 0 || !found.is_drawn()) return;
  EXPECT_EQ(found.logprob, expected.logprob) << what;
  ASSERT_EQ(found.top.size(), expected.top.size()) << what;
  for (size_t k = 0; k < found.top.size(); ++k) {
    EXPECT_EQ(found.top[k].token, expected.top[k].token) << what << ", place " << k;
    EXPECT_EQ(found.top[k].logprob, expected.top[k].logprob) << what << ", place " << k;
  }
}

/// Draws all rows in one launch, and again a few at a time.
void expect_what_few_rows_draw(const std::vector<float>& logits, std::span<const SamplingRow> rows) {
  const int64_t count = std::ssize(rows);
  const int64_t vocabulary = std::ssize(logits) / count;
  const CudaTensor tensor(DType::f32, count, vocabulary, logits);
  CudaSampler sampler(static_cast<int32_t>(count), vocabulary);
  const std::vector<SampledToken> few = sampler.sample_in_slices(tensor.tensor(), rows, kFewRows);
  const std::vector<SampledToken> all = sampler.sample(tensor.tensor(), rows);
  for (size_t i = 0; i < rows.size(); ++i)
    expect_same(rows[i], all[i], few[i],
                "vocabulary " + std::to_string(vocabulary) + ", row " + std::to_string(i));
}

// Rows of all kinds take turns in a cluster: greedy, tried, searched, masked, penalised, with logprobs, without any token.
TEST_F(CudaSamplingRounds, RowsOfAllKindsDrawWhatFewRowsDo) {
  constexpr int kRows = 300;
  constexpr float kNothing[] = {std::numeric_limits<float>::quiet_NaN(),
                                -std::numeric_limits<float>::infinity()};
  for (const int64_t vocabulary : {3, 12, 1003, 4096, 5000, 16'388, 33'000}) {
    std::vector<float> logits = test::normal_values(kRows * vocabulary, 3, 2.0f);
    for (int64_t i = 0; i < kRows; ++i) {
      const std::span row =
          std::span(logits).subspan(static_cast<size_t>(i * vocabulary), static_cast<size_t>(vocabulary));
      if (i % 13 == 5) std::ranges::fill(row, kNothing[0]);
      if (i % 13 == 7) std::ranges::fill(row, -1.5f);
      for (size_t k = 0; k < row.size() && i % 5 == 1; k += 7)
        row[k] = kNothing[k % 2];
    }
    const test::RandomRows random(kRows, vocabulary, static_cast<uint64_t>(vocabulary));
    std::vector<SamplingRow> rows = random.rows();
    std::vector<std::vector<uint32_t>> masks;
    masks.reserve(rows.size());
    for (size_t i = 0; i < rows.size(); i += 3) {
      const test::MaskKind kind = test::kMaskKinds[i / 3 % std::size(test::kMaskKinds)];
      rows[i].allowed = masks.emplace_back(test::random_mask(kind, vocabulary, i));
    }
    expect_what_few_rows_draw(logits, rows);
  }
}

/// Rows with nothing but a way to be drawn, ordered so that a cluster meets every change from one way to another.
std::vector<SamplingRow> rows_of_ways(int count) {
  std::vector<SamplingRow> rows(static_cast<size_t>(count));
  for (size_t i = 0; i < rows.size(); ++i) {
    SamplingRow& row = rows[i];
    row.temperature = 0.8f;
    row.seed = i;
    row.position = static_cast<int64_t>(3 * i);
    const size_t way = (i + i / 8) % 8;
    if (way == 1) row.top_p = 0.9f;
    if (way == 2) row.top_k = 50;
    if (way == 3) row.top_p = 0.01f;  // takes many tries
    if (way == 4) row.min_p = 0.5f;
    if (way == 5) row.temperature = 0.0f;
    if (way == 6) row.top_k = 2000;
    if (way == 7) row.top_logprobs = 5;
  }
  return rows;
}

TEST_F(CudaSamplingRounds, WaysOfDrawingTakeTurnsInALargeVocabulary) {
  constexpr int kRows = 120;
  constexpr int64_t kVocabulary = 128'256;
  const std::vector<float> logits = test::normal_values(kRows * kVocabulary, 4);
  const std::vector<SamplingRow> rows = rows_of_ways(kRows);
  expect_what_few_rows_draw(logits, rows);
  const CudaTensor tensor(DType::f32, kRows, kVocabulary, logits);
  const std::vector<SampledToken> found = CudaSampler(kRows, kVocabulary).sample(tensor.tensor(), rows);
  const std::vector<SampledToken> expected = test::sample_on_cpu(logits, rows);
  int different = 0;
  for (size_t i = 0; i < rows.size(); ++i)
    different += found[i].token != expected[i].token ? 1 : 0;
  EXPECT_LE(different, 1);
}

TEST_F(CudaSamplingRounds, PaddingRowsGetTokenZeroInAnyRound) {
  constexpr int kPadded = 160;
  constexpr int64_t kVocabulary = 700;
  const std::vector<float> logits = test::normal_values(kPadded * kVocabulary, 3);
  const CudaTensor tensor(DType::f32, kPadded, kVocabulary, logits);
  const std::vector<SamplingRow> rows = rows_of_ways(kPadded);
  CudaSampler all(kPadded, kVocabulary);
  const std::vector<SampledToken> expected = all.sample(tensor.tensor(), rows);
  for (const size_t count : {0, 1, 39, 41, 80, 159}) {
    CudaSampler sampler(kPadded, kVocabulary);
    const std::vector<SampledToken> out = sampler.sample(tensor.tensor(), std::span(rows).first(count));
    const std::vector<int32_t> tokens = sampler.tokens();
    for (size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_EQ(tokens[i], i < count ? expected[i].token : 0) << "row " << i << " of " << count;
      if (i < count) expect_same(rows[i], out[i], expected[i], "row " + std::to_string(i));
    }
  }
}

}  // namespace
}  // namespace minfer
