#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "tests/reference/ops.h"
#include "tests/support/chi_square.h"
#include "tests/support/cuda/device_data.h"
#include "tests/support/random_data.h"
#include "tests/support/random_rows.h"
#include "tests/support/token_masks.h"

namespace minfer {
namespace {

using test::MaskKind;

SampledToken sample_masked(const std::vector<float>& logits, const SamplingRow& row) {
  const auto backend = make_cpu_backend(1);
  const test::GuardedTensor tensor(*backend, 1, std::ssize(logits), logits);
  std::vector<SampledToken> out(1);
  test::sample(*backend, tensor.tensor(), std::vector<SamplingRow>{row}, out);
  return out[0];
}

SamplingRow greedy_masked(const std::vector<uint32_t>& mask) {
  SamplingRow row;
  row.temperature = 0.0f;
  row.allowed = mask;
  return row;
}

constexpr int64_t kOddVocabularies[] = {1, 31, 32, 33, 95, 96, 1003, 32'001};

TEST(SamplingMask, GreedyTakesTheLargestAllowedLogit) {
  EXPECT_TRUE(make_cpu_backend(1)->info().takes_masks);
  for (const int64_t vocabulary : kOddVocabularies) {
    const std::vector<float> logits = test::normal_values(vocabulary, 3, 2.0f);
    for (const MaskKind kind : test::kMaskKinds) {
      const std::vector<uint32_t> mask = test::random_mask(kind, vocabulary, 5);
      int32_t expected = -1;
      for (int32_t token = 0; token < vocabulary; ++token) {
        if (test::mask_allows(mask, token) && (expected < 0 || logits[token] > logits[expected]))
          expected = token;
      }
      EXPECT_EQ(sample_masked(logits, greedy_masked(mask)).token, expected)
          << "vocabulary " << vocabulary << ", mask " << static_cast<int>(kind);
    }
  }
}

// Whatever else a row asks for, it draws only tokens to which the reference gives a probability.
TEST(SamplingMask, DrawsWhatTheReferenceCanDraw) {
  constexpr int kNumRows = 300;
  int num_drawn = 0;
  for (const int64_t vocabulary : {33, 1003, 4099}) {
    const test::RandomRows random(kNumRows, vocabulary, static_cast<uint64_t>(vocabulary));
    for (int i = 0; i < kNumRows; ++i) {
      const std::vector<float> logits = test::normal_values(vocabulary, static_cast<uint64_t>(i), 2.0f);
      const MaskKind kind = test::kMaskKinds[static_cast<size_t>(i) % std::size(test::kMaskKinds)];
      const std::vector<uint32_t> mask = test::random_mask(kind, vocabulary, static_cast<uint64_t>(i));
      SamplingRow row = random.rows()[static_cast<size_t>(i)];
      row.allowed = mask;
      const SampledToken token = sample_masked(logits, row);
      EXPECT_FALSE(kind == MaskKind::none && token.is_drawn());
      if (!token.is_drawn()) continue;
      ++num_drawn;
      EXPECT_TRUE(test::mask_allows(mask, token.token)) << "row " << i;
      EXPECT_GT(reference::distribution(logits, row)[static_cast<size_t>(token.token)], 0.0) << "row " << i;
    }
  }
  EXPECT_GT(num_drawn, 700);
}

TEST(SamplingMask, DrawsFromTheExactDistribution) {
  const std::vector<float> logits = test::normal_values(203, 4, 2.0f);
  const auto backend = make_cpu_backend(2);
  std::vector<float> all;
  for (int i = 0; i < test::kChiSquareRows; ++i)
    all.insert(all.end(), logits.begin(), logits.end());
  const test::GuardedTensor tensor(*backend, test::kChiSquareRows, std::ssize(logits), all);
  const std::vector<LogitBias> biases{{3, 1.5f}, {77, -2.0f}};
  for (const MaskKind kind : {MaskKind::half, MaskKind::words, MaskKind::most}) {
    const std::vector<uint32_t> mask = test::random_mask(kind, std::ssize(logits), 11);
    for (const int32_t top_k : {0, 12}) {
      SamplingRow row;
      row.seed = 42;
      row.top_k = top_k;
      row.top_p = top_k == 0 ? 1.0f : 0.9f;
      row.biases = biases;
      row.allowed = mask;
      const test::ChiSquare result =
          test::chi_square(row, reference::distribution(logits, row), [&](std::span<const SamplingRow> rows) {
            std::vector<SampledToken> out(rows.size());
            test::sample(*backend, tensor.tensor(), rows, out);
            return out;
          });
      EXPECT_LT(result.statistic, result.limit()) << "mask " << static_cast<int>(kind) << ", top_k " << top_k;
    }
  }
}

TEST(SamplingMask, ABiasDoesNotBringBackWhatIsNotAllowed) {
  const std::vector<uint32_t> mask{0b101};
  for (const float bias : {100.0f, std::numeric_limits<float>::infinity()}) {
    const std::vector<LogitBias> biases{{1, bias}, {2, -5.0f}};
    SamplingRow row = greedy_masked(mask);
    row.biases = biases;
    EXPECT_EQ(sample_masked({1.0f, 9.0f, 5.0f}, row).token, 0) << "5 - 5 < 1";
  }
}

TEST(SamplingMask, PenaltiesApplyToWhatIsAllowed) {
  const std::vector<uint32_t> mask{0b110};
  const std::vector<TokenCount> counts{{0, 3, true}, {1, 2, false}};
  SamplingRow row = greedy_masked(mask);
  row.repetition_penalty = 2.0f;
  row.counts = counts;
  EXPECT_EQ(sample_masked({9.0f, 4.0f, 3.0f}, row).token, 2) << "4 / 2 < 3";
}

TEST(SamplingMask, LogprobsAreOfTheRawDistribution) {
  const std::vector<float> logits = test::normal_values(77, 9, 2.0f);
  const std::vector<uint32_t> mask = test::random_mask(MaskKind::one, 77, 1);
  SamplingRow row = greedy_masked(mask);
  row.top_logprobs = 4;
  const SampledToken token = sample_masked(logits, row);
  ASSERT_TRUE(token.is_drawn());
  const std::vector<double> expected = reference::log_softmax(logits);
  EXPECT_NEAR(token.logprob, expected[static_cast<size_t>(token.token)], 1e-5);
  ASSERT_EQ(token.top.size(), 4u);
  EXPECT_NEAR(token.top[0].logprob, *std::ranges::max_element(expected), 1e-5);
}

TEST(SamplingMask, RefusesAMaskOfAnotherVocabulary) {
  const std::vector<float> logits(64, 1.0f);
  for (const size_t words : {1, 3}) {
    const std::vector<uint32_t> mask(words, ~uint32_t{0});
    try {
      sample_masked(logits, greedy_masked(mask));
      FAIL() << "expected an Error";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("row 0"));
      EXPECT_THAT(error.what(), testing::HasSubstr("expected 2 for a vocabulary of 64"));
    }
  }
}

}  // namespace
}  // namespace minfer
