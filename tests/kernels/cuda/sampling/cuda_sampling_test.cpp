#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "kernels/base/error_types.h"
#include "kernels/base/random.h"
#include "tests/reference/ops.h"
#include "tests/support/chi_square.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_sampler.h"
#include "tests/support/drawn_rows.h"
#include "tests/support/random_data.h"
#include "tests/support/random_rows.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaSampler;
using test::CudaTensor;
using test::RandomRows;
using test::sample;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

int32_t sample_one(const std::vector<float>& logits, const SamplingRow& row,
                   std::span<const int32_t> previous = {}) {
  return sample(logits, {&row, 1}, previous)[0].token;
}

SamplingRow greedy() {
  SamplingRow row;
  row.temperature = 0.0f;
  return row;
}

/// The tokens of 2,000 draws at positions 0, 1, ...
std::set<int32_t> drawn(const std::vector<float>& logits, SamplingRow row) {
  constexpr int kDraws = 2000;
  std::vector<float> all;
  std::vector<SamplingRow> rows;
  for (int i = 0; i < kDraws; ++i) {
    all.insert(all.end(), logits.begin(), logits.end());
    row.position = i;
    rows.push_back(row);
  }
  std::set<int32_t> tokens;
  for (const SampledToken& token : sample(all, rows))
    tokens.insert(token.token);
  return tokens;
}

std::set<int32_t> support(const std::vector<float>& logits, const SamplingRow& row) {
  const std::vector<double> probabilities = reference::distribution(logits, row);
  std::set<int32_t> tokens;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] > 0.0) tokens.insert(static_cast<int32_t>(i));
  }
  return tokens;
}

class CudaSampling : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaSampling, ADrawDependsOnItsRowAlone) {
  constexpr int64_t kVocabulary = 5000;
  const std::vector<float> logits = test::normal_values(kVocabulary, 1, 2.0f);
  std::vector<float> all;
  std::vector<SamplingRow> rows;
  for (int i = 0; i < 300; ++i) {
    all.insert(all.end(), logits.begin(), logits.end());
    SamplingRow row;
    row.seed = static_cast<uint64_t>(i % 20);
    row.position = 5;
    row.top_p = 0.95f;
    rows.push_back(row);
  }
  const std::vector<SampledToken> together = sample(all, rows);
  std::set<int32_t> tokens;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(together[i].token, together[i % 20].token) << "row " << i;
    tokens.insert(together[i].token);
  }
  for (size_t i = 0; i < 20; ++i)
    EXPECT_EQ(sample_one(logits, rows[i]), together[i].token) << "row " << i;
  EXPECT_GT(tokens.size(), 10u) << "seeds change the token";
}

// --- The distribution

using test::ChiSquare;

/// A row of logits, repeated once for each draw of a call.
std::vector<float> repeated(const std::vector<float>& logits) {
  std::vector<float> all;
  for (int i = 0; i < test::kChiSquareRows; ++i)
    all.insert(all.end(), logits.begin(), logits.end());
  return all;
}

ChiSquare chi_square(const std::vector<float>& logits, const SamplingRow& row,
                     const std::vector<double>& probabilities) {
  const CudaTensor tensor(DType::f32, test::kChiSquareRows, std::ssize(logits), repeated(logits));
  CudaSampler sampler(test::kChiSquareRows, std::ssize(logits));
  return test::chi_square(row, probabilities, [&](std::span<const SamplingRow> rows) {
    return sampler.sample(tensor.tensor(), rows);
  });
}

void expect_distribution(const std::vector<float>& logits, const SamplingRow& row, const char* what) {
  const ChiSquare result = chi_square(logits, row, reference::distribution(logits, row));
  EXPECT_LT(result.statistic, result.limit()) << what;
}

TEST_F(CudaSampling, DrawsFromTheExactDistribution) {
  test::visit_drawn_rows(expect_distribution);
}

/// Without top_k, most rows take more than one try.
TEST_F(CudaSampling, TriesUntilATokenIsKept) {
  test::visit_tried_rows(expect_distribution);
}

TEST_F(CudaSampling, TheDistributionTestSeesAWrongTemperature) {
  const std::vector<float> logits = test::normal_values(200, 4, 2.0f);
  SamplingRow warmer;
  warmer.temperature = 1.05f;
  const ChiSquare result = chi_square(logits, SamplingRow{}, reference::distribution(logits, warmer));
  EXPECT_GT(result.statistic, result.limit());
}

TEST_F(CudaSampling, SupportSetsAreExact) {
  const std::vector<float> logits{1.0f, 3.0f, 2.0f, 3.0f, 0.0f, 2.5f, 0.5f, 2.0f};
  for (const int32_t top_k : {0, 1, 2, 3, 5, 8}) {
    for (const float top_p : {0.0f, 0.3f, 0.5f, 0.9f, 1.0f}) {
      for (const float min_p : {0.0f, 0.3f, 1.0f}) {
        SamplingRow row;
        row.top_k = top_k;
        row.top_p = top_p;
        row.min_p = min_p;
        EXPECT_EQ(drawn(logits, row), support(logits, row)) << top_k << " " << top_p << " " << min_p;
      }
    }
  }
}

TEST_F(CudaSampling, CutsEqualLogitsAtTheLowerTokens) {
  const std::vector<float> logits(7000, -2.0f);
  SamplingRow row;
  row.top_k = 3000;
  EXPECT_LT(*drawn(logits, row).rbegin(), 3000);
  row.top_k = 3;
  EXPECT_EQ(drawn(logits, row), (std::set<int32_t>{0, 1, 2}));
  row.top_k = 0;
  row.top_p = 0.0005f;  // 3.5 of 7,000
  EXPECT_EQ(drawn(logits, row), (std::set<int32_t>{0, 1, 2, 3}));
  row.top_k = 2;
  row.top_p = 0.6f;
  EXPECT_EQ(drawn(logits, row), (std::set<int32_t>{0, 1}));
}

// --- Greedy, bias and penalties

TEST_F(CudaSampling, GreedyTakesTheLowestTokenOfATie) {
  EXPECT_EQ(sample_one({0.0f, 2.0f, 1.0f, 2.0f}, greedy()), 1);
  EXPECT_EQ(sample_one({-0.0f, 0.0f, -1.0f}, greedy()), 0);
  EXPECT_EQ(sample_one(std::vector<float>(100'000, -3.0f), greedy()), 0);
  for (const int32_t at : {0, 1, 124, 125, 126, 500, 998, 999}) {
    std::vector<float> logits(1000, -1.0f);
    logits[at] = logits[999] = -0.5f;
    EXPECT_EQ(sample_one(logits, greedy()), at);
  }
}

TEST_F(CudaSampling, SlicesOfRowsGiveWhatAllRowsTogetherDo) {
  constexpr int kRows = 40;
  constexpr int64_t kVocabulary = 3000;
  const std::vector<float> logits = test::normal_values(kRows * kVocabulary, 2);
  const CudaTensor tensor(DType::f32, kRows, kVocabulary, logits);
  for (const bool all_greedy : {true, false}) {
    std::vector<SamplingRow> rows(kRows, greedy());
    for (size_t i = 0; i < rows.size() && !all_greedy; ++i) {
      rows[i].temperature = i % 2 == 0 ? 5.0f : 0.0f;
      rows[i].position = static_cast<int64_t>(i);
      rows[i].top_logprobs = static_cast<int32_t>(i % 4) - 1;
    }
    const std::vector<SampledToken> whole = sample(logits, rows);
    const std::vector<SampledToken> sliced =
        CudaSampler(kRows, kVocabulary).sample_in_slices(tensor.tensor(), rows, 16);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(sliced[i].token, whole[i].token) << i;
      EXPECT_EQ(sliced[i].logprob, whole[i].logprob) << i;
      EXPECT_EQ(sliced[i].top.size(), whole[i].top.size()) << i;
    }
  }
}

TEST_F(CudaSampling, GreedyAndGeneralRowsMix) {
  const std::vector<float> logits = test::normal_values(40 * 3000, 2);
  std::vector<SamplingRow> rows(40, greedy());
  const std::vector<SampledToken> alone = sample(logits, rows);
  for (size_t i = 1; i < rows.size(); i += 2)
    rows[i].temperature = 5.0f;
  const std::vector<SampledToken> mixed = sample(logits, rows);
  int changed = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (i % 2 == 0) {
      EXPECT_EQ(mixed[i].token, alone[i].token);
    }
    changed += mixed[i].token != alone[i].token;
  }
  EXPECT_GT(changed, 10);
}

TEST_F(CudaSampling, AddsBiasesOfOneTokenInOrder) {
  SamplingRow row = greedy();
  const std::vector<LogitBias> biases{{0, -kInfinity}, {2, 0.5f}, {1, 0.25f}, {2, 0.25f}, {0, 50.0f}};
  row.biases = biases;
  EXPECT_EQ(sample_one({9.0f, 2.4f, 2.0f}, row), 2);  // 2.75 beats 2.65; a forbidden token stays forbidden
  EXPECT_EQ(sample_one({9.0f, 2.6f, 2.0f}, row), 1);
}

TEST_F(CudaSampling, ThePendingTokenCounts) {
  SamplingRow row = greedy();
  row.frequency_penalty = 1.0f;
  row.pending_row = 1;
  const std::vector<TokenCount> counts{{0, 1, false}, {2, 1, true}};
  row.counts = counts;
  const std::vector<float> logits{3.0f, 1.8f, 2.5f, 1.0f};  // counted: 2.0, 1.8, 1.5, 1.0
  EXPECT_EQ(sample_one(logits, row, std::vector<int32_t>{9, 3}), 0);
  EXPECT_EQ(sample_one(logits, row, std::vector<int32_t>{9, 0}), 1) << "once more than the host knows";
  const std::vector<float> others{3.0f, 2.5f, 2.2f, 1.0f};  // counted: 2.0, 2.5, 1.2, 1.0
  EXPECT_EQ(sample_one(others, row, std::vector<int32_t>{9, 3}), 1);
  EXPECT_EQ(sample_one(others, row, std::vector<int32_t>{9, 1}), 0) << "not among the counts";
  row.counts = {};
  EXPECT_EQ(sample_one({3.0f, 2.5f}, row, std::vector<int32_t>{9, 0}), 1) << "the first token generated";
  row.frequency_penalty = 0.0f;
  EXPECT_EQ(sample_one({3.0f, 2.5f}, row, std::vector<int32_t>{9, 0}), 0) << "no penalty";
}

// --- Logprobs

TEST_F(CudaSampling, LogprobsAreOfTheRawDistribution) {
  const std::vector<float> logits = test::normal_values(32000, 8, 2.0f);
  const std::vector<double> expected = reference::log_softmax(logits);
  SamplingRow row = greedy();
  const auto best = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
  const std::vector<LogitBias> biases{{best, -kInfinity}, {17, 100.0f}};
  row.biases = biases;
  row.top_logprobs = 20;
  const SampledToken token = sample(logits, {&row, 1})[0];
  EXPECT_EQ(token.token, 17);
  EXPECT_NEAR(token.logprob, expected[17], 1e-5);
  ASSERT_EQ(token.top.size(), 20u);
  EXPECT_EQ(token.top[0].token, best) << "the raw distribution, without the bias";
  std::vector<double> sorted = expected;
  std::ranges::sort(sorted, std::ranges::greater{});
  for (size_t i = 0; i < token.top.size(); ++i) {
    EXPECT_NEAR(token.top[i].logprob, sorted[i], 1e-5);
    EXPECT_NEAR(token.top[i].logprob, expected[token.top[i].token], 1e-5);
  }
}

TEST_F(CudaSampling, LogprobsOfMoreTokensThanThereAre) {
  SamplingRow row = greedy();
  row.top_logprobs = 20;
  const SampledToken token = sample({1.0f, 3.0f, 2.0f, -kInfinity}, {&row, 1})[0];
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].token, 1);
  EXPECT_EQ(token.top[2].token, 0);
  row.top_logprobs = 0;
  EXPECT_TRUE(sample({1.0f, 3.0f, 2.0f}, {&row, 1})[0].top.empty());
  row.top_logprobs = 21;
  EXPECT_THROW(sample({1.0f, 3.0f, 2.0f}, {&row, 1}), Error);
}

// --- Bad logits, padding, graphs

TEST_F(CudaSampling, NanIsNeverDrawn) {
  SamplingRow row;
  EXPECT_EQ(drawn({kNan, 1.0f, kNan, 1.0f, -kInfinity}, row), (std::set<int32_t>{1, 3}));
  row.top_k = 2;
  row.top_p = 0.99f;
  EXPECT_EQ(drawn({kNan, 1.0f, kNan, 1.0f, 0.5f}, row), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(sample_one({kNan, 1.0f, 2.0f, kNan}, greedy()), 2);
  EXPECT_EQ(sample_one({kNan, -kInfinity, -5.0f}, greedy()), 2);
}

TEST_F(CudaSampling, InfinityTakesAll) {
  EXPECT_EQ(drawn({1.0f, kInfinity, 2.0f}, SamplingRow{}), (std::set<int32_t>{1}));
  EXPECT_EQ(sample_one({1.0f, 2.0f, kInfinity}, greedy()), 2);
}

TEST_F(CudaSampling, ExtremeTemperaturesStayFinite) {
  const std::vector<float> logits{1.0f, 2.0f, 1.5f};
  SamplingRow row;
  row.temperature = 1e-30f;
  EXPECT_EQ(drawn(logits, row), (std::set<int32_t>{1}));
  row.temperature = 1e30f;
  EXPECT_EQ(drawn(logits, row), (std::set<int32_t>{0, 1, 2}));
}

TEST_F(CudaSampling, ARowWithoutAnyTokenDrawsNoneAndLeavesTheOthersAlone) {
  constexpr int64_t kVocabulary = 300;
  const std::vector<float> good = test::normal_values(4 * kVocabulary, 5);
  std::vector<LogitBias> forbidden;
  for (int32_t token = 0; token < kVocabulary; ++token)
    forbidden.push_back({token, -kInfinity});
  for (const float temperature : {0.0f, 1.0f}) {
    for (const int32_t top_logprobs : {-1, 3}) {
      std::vector<SamplingRow> rows(4);
      for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].temperature = temperature;
        rows[i].seed = i;
        rows[i].top_logprobs = top_logprobs;
      }
      const std::vector<SampledToken> expected = sample(good, rows);
      std::vector<float> logits = good;
      std::fill_n(logits.begin() + kVocabulary, kVocabulary, kNan);
      std::fill_n(logits.begin() + kVocabulary + 7, 9, -kInfinity);
      const CudaTensor tensor(DType::f32, 4, kVocabulary, logits);
      CudaSampler sampler(4, kVocabulary);
      for (const bool is_forbidden : {false, true}) {  // without: the greedy kernel
        if (is_forbidden) rows[2].biases = forbidden;
        const std::vector<SampledToken> out = sampler.sample(tensor.tensor(), rows);
        const std::vector<int32_t> fed = sampler.tokens();
        for (const size_t i : {0, 1, 2, 3}) {
          const bool is_poisoned = i == 1 || (i == 2 && is_forbidden);
          EXPECT_EQ(out[i].is_drawn(), !is_poisoned) << "row " << i << ", temperature " << temperature;
          EXPECT_EQ(fed[i], is_poisoned ? 0 : expected[i].token) << "what the next step reads";
          if (is_poisoned) continue;
          EXPECT_EQ(out[i].token, expected[i].token);
          EXPECT_EQ(out[i].logprob, expected[i].logprob);
          EXPECT_EQ(out[i].top.size(), expected[i].top.size());
        }
      }
    }
  }
}

TEST_F(CudaSampling, AForbiddenInfinityStaysForbidden) {
  const std::vector<LogitBias> biases{{1, -kInfinity}};
  SamplingRow row = greedy();
  row.biases = biases;
  EXPECT_EQ(sample_one({1.0f, kInfinity, 2.0f}, row), 2);
  row.temperature = 1.0f;
  EXPECT_EQ(drawn({1.0f, kInfinity, 2.0f}, row), (std::set<int32_t>{0, 2}));
}

/// Sums of as many equal probabilities as a vocabulary may have.
TEST_F(CudaSampling, AMillionEqualTokensAreAddedUpExactly) {
  constexpr int32_t kVocabulary = 1 << 20;
  const std::vector<float> logits(kVocabulary, -2.0f);
  SamplingRow row;
  EXPECT_EQ(sample_one(logits, greedy()), 0);
  for (row.position = 0; row.position < 5; ++row.position) {
    row.top_p = 1.0f;
    const auto expected = static_cast<int32_t>(uniform(row.seed, row.position) * kVocabulary);
    EXPECT_EQ(sample_one(logits, row), expected);
    row.top_p = 0.5f;
    int32_t tried = kVocabulary;
    for (uint32_t attempt = 0; tried >= kVocabulary / 2; ++attempt)
      tried = static_cast<int32_t>(uniform(row.seed, row.position, attempt) * tried);
    EXPECT_EQ(sample_one(logits, row), tried);
  }
  EXPECT_THROW(CudaSampler(1, kVocabulary + 1), Error);
}

TEST_F(CudaSampling, RefusesParametersOutOfRange) {
  SamplingRow row;
  row.temperature = -1.0f;
  EXPECT_THROW(sample_one({1.0f, 2.0f}, row), Error);
  row = {};
  row.repetition_penalty = 0.0f;
  EXPECT_THROW(sample_one({1.0f, 2.0f}, row), Error);
}

TEST_F(CudaSampling, PaddingRowsGetTokenZero) {
  const std::vector<float> logits = test::normal_values(8 * 700, 3);
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingRow row;
    row.temperature = temperature;
    const std::vector<SamplingRow> rows(3, row);
    const CudaTensor tensor(DType::f32, 8, 700, logits);
    CudaSampler sampler(8, 700);
    const std::vector<SampledToken> out = sampler.sample(tensor.tensor(), rows);
    const std::vector<int32_t> tokens = sampler.tokens();
    for (size_t i = 0; i < tokens.size(); ++i)
      EXPECT_EQ(tokens[i], i < rows.size() ? out[i].token : 0) << i;
  }
}

TEST_F(CudaSampling, AGraphServesOtherRows) {
  constexpr int kRows = 16;
  constexpr int64_t kVocabulary = 4000;
  const std::vector<float> logits = test::normal_values(kRows * kVocabulary, 9, 2.0f);
  const CudaTensor tensor(DType::f32, kRows, kVocabulary, logits);
  CudaSampler sampler(kRows, kVocabulary);
  const cuda::GraphExec graph = sampler.capture(tensor.tensor(), {.greedy_only = false, .logprobs = true});
  for (const int count : {16, 3, 11}) {
    const RandomRows random(count, kVocabulary, static_cast<uint64_t>(count));
    sampler.stage(random.rows());
    sampler.replay(graph);
    const std::vector<SampledToken> replayed = sampler.drawn(static_cast<size_t>(count));
    const std::vector<float> used(logits.begin(), logits.begin() + count * kVocabulary);
    const std::vector<SampledToken> expected = test::sample_on_cpu(used, random.rows());
    for (size_t i = 0; i < replayed.size(); ++i) {
      EXPECT_EQ(replayed[i].token, expected[i].token) << count << " rows, row " << i;
      EXPECT_EQ(replayed[i].top.size(), expected[i].top.size());
    }
    EXPECT_EQ(sampler.tokens()[0], expected[0].token);
    if (count < kRows) {
      EXPECT_EQ(sampler.tokens()[static_cast<size_t>(count)], 0);
    }
  }
}

}  // namespace
}  // namespace minfer
