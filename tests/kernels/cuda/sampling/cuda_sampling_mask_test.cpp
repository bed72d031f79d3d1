#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error_types.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_sampler.h"
#include "tests/support/random_data.h"
#include "tests/support/random_rows.h"
#include "tests/support/token_masks.h"

namespace minfer {
namespace {

using test::CudaSampler;
using test::CudaTensor;
using test::MaskKind;

std::vector<SampledToken> sample_rows(const std::vector<float>& logits, std::span<const SamplingRow> rows) {
  const int64_t vocabulary = std::ssize(logits) / std::ssize(rows);
  const CudaTensor tensor(DType::f32, std::ssize(rows), vocabulary, logits);
  return CudaSampler(static_cast<int32_t>(rows.size()), vocabulary).sample(tensor.tensor(), rows);
}

class CudaSamplingMask : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

// Free rows and rows with all kinds of masks in one step, whatever else they ask for: the CPU backend's tokens, except for
// roundings of a probability mass.
TEST_F(CudaSamplingMask, DrawsTheCpuBackendsTokens) {
  int64_t rows_drawn = 0, different = 0;
  for (const int64_t vocabulary : {1, 31, 33, 512, 1003, 32'001, 128'256, 262'209}) {
    const int num_rows = vocabulary > 100'000 ? 24 : 96;
    const std::vector<float> logits = test::normal_values(num_rows * vocabulary, 7, 2.0f);
    const test::RandomRows random(num_rows, vocabulary, static_cast<uint64_t>(vocabulary));
    std::vector<SamplingRow> rows = random.rows();
    std::vector<std::vector<uint32_t>> masks;
    masks.reserve(rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const MaskKind kind = test::kMaskKinds[i / 2 % std::size(test::kMaskKinds)];
      if (i % 2 == 0) rows[i].allowed = masks.emplace_back(test::random_mask(kind, vocabulary, i));
    }
    const std::vector<SampledToken> found = sample_rows(logits, rows);
    const std::vector<SampledToken> expected = test::sample_on_cpu(logits, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      const bool is_allowed =
          !found[i].is_drawn() || rows[i].allowed.empty() || test::mask_allows(masks[i / 2], found[i].token);
      EXPECT_TRUE(is_allowed) << "vocabulary " << vocabulary << ", row " << i;
      EXPECT_EQ(found[i].is_drawn(), expected[i].is_drawn()) << "vocabulary " << vocabulary << ", row " << i;
      ++rows_drawn;
      different += found[i].token != expected[i].token;
    }
  }
  EXPECT_LE(different, rows_drawn / 200);
}

TEST_F(CudaSamplingMask, GreedyRowsOfOneMaskShareIt) {
  constexpr int64_t kVocabulary = 1003;
  const std::vector<uint32_t> mask = test::random_mask(MaskKind::few, kVocabulary, 3);
  std::vector<SamplingRow> rows(5);
  for (SamplingRow& row : rows) {
    row.temperature = 0.0f;
    row.allowed = mask;
  }
  rows[2].allowed = {};
  const std::vector<float> logits = test::normal_values(5 * kVocabulary, 9);
  const std::vector<SampledToken> found = sample_rows(logits, rows);
  const std::vector<SampledToken> expected = test::sample_on_cpu(logits, rows);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(found[i].token, expected[i].token) << "row " << i;
}

TEST_F(CudaSamplingMask, ABiasDoesNotBringBackWhatIsNotAllowed) {
  const std::vector<uint32_t> mask{0b101};
  for (const float bias : {100.0f, std::numeric_limits<float>::infinity()}) {
    const std::vector<LogitBias> biases{{1, bias}, {2, -5.0f}};
    SamplingRow row;
    row.temperature = 0.0f;
    row.biases = biases;
    row.allowed = mask;
    EXPECT_EQ(sample_rows({1.0f, 9.0f, 5.0f}, {&row, 1})[0].token, 0);
  }
}

TEST_F(CudaSamplingMask, LogprobsAreOfTheRawDistribution) {
  const std::vector<float> logits = test::normal_values(77, 9, 2.0f);
  const std::vector<uint32_t> mask = test::random_mask(MaskKind::one, 77, 1);
  SamplingRow row;
  row.temperature = 0.0f;
  row.top_logprobs = 4;
  row.allowed = mask;
  const SampledToken token = sample_rows(logits, {&row, 1})[0];
  ASSERT_TRUE(token.is_drawn());
  EXPECT_NEAR(token.logprob, reference::log_softmax(logits)[static_cast<size_t>(token.token)], 1e-5);
  EXPECT_EQ(token.top.size(), 4u);
}

// A graph holds addresses: every step's masks come to the same place.
TEST_F(CudaSamplingMask, ACapturedStepTakesTheMasksOfEachReplay) {
  constexpr int64_t kVocabulary = 321;
  const std::vector<float> logits = test::normal_values(2 * kVocabulary, 5);
  const CudaTensor tensor(DType::f32, 2, kVocabulary, logits);
  CudaSampler sampler(2, kVocabulary);
  std::vector<SamplingRow> rows(2);
  rows[0].temperature = rows[1].temperature = 0.0f;
  const std::vector<uint32_t> first = test::random_mask(MaskKind::half, kVocabulary, 1);
  rows[0].allowed = rows[1].allowed = first;
  sampler.sample(tensor.tensor(), rows);
  const cuda::GraphExec graph = sampler.capture(tensor.tensor(), sampler.stage(rows));
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const std::vector<uint32_t> a = test::random_mask(MaskKind::few, kVocabulary, 10 + seed);
    const std::vector<uint32_t> b = test::random_mask(MaskKind::words, kVocabulary, 20 + seed);
    rows[0].allowed = a;
    rows[1].allowed = b;
    sampler.stage(rows);
    sampler.replay(graph);
    const std::vector<SampledToken> found = sampler.drawn(2);
    const std::vector<SampledToken> expected = test::sample_on_cpu(logits, rows);
    EXPECT_EQ(found[0].token, expected[0].token) << seed;
    EXPECT_EQ(found[1].token, expected[1].token) << seed;
  }
}

TEST_F(CudaSamplingMask, RefusesAMaskOfAnotherVocabulary) {
  const std::vector<float> logits(64, 1.0f);
  const std::vector<uint32_t> mask(3, ~uint32_t{0});
  SamplingRow row;
  row.allowed = mask;
  EXPECT_THROW(sample_rows(logits, {&row, 1}), Error);
}

}  // namespace
}  // namespace minfer
