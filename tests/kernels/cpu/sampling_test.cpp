#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "kernels/base/random.h"
#include "tests/reference/ops.h"
#include "tests/support/chi_square.h"
#include "tests/support/cuda/device_data.h"
#include "tests/support/drawn_rows.h"
#include "tests/support/isa_scope.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::GuardedTensor;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Draws each row of `rows` from its row of `logits`.
std::vector<SampledToken> sample(Backend& backend, const std::vector<float>& logits,
                                 const std::vector<SamplingRow>& rows) {
  const int64_t vocabulary = std::ssize(logits) / std::ssize(rows);
  const GuardedTensor tensor(backend, std::ssize(rows), vocabulary, logits);
  std::vector<SampledToken> out(rows.size());
  test::sample(backend, tensor.tensor(), rows, out);
  const std::vector<float> after = tensor.values();
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_TRUE(after[i] == logits[i] || std::isnan(logits[i])) << "logits are not to be changed";
  }
  return out;
}

int32_t sample_one(const std::vector<float>& logits, const SamplingRow& row) {
  return sample(*make_cpu_backend(1), logits, {row})[0].token;
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
  for (const SampledToken& token : sample(*make_cpu_backend(2), all, rows))
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

// --- The random number
// -------------------------------------------------------------------------------------------

TEST(Random, PhiloxGivesItsKnownAnswers) {  // kat_vectors of Random123
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u}));
  const uint32_t ones = 0xffffffffu;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu}));
  EXPECT_EQ(philox4x32({0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}, {0xa4093822u, 0x299f31d0u}),
            (Words{0xd16cfe09u, 0x94fdccebu, 0x5001e420u, 0x24126ea1u}));
}

TEST(Random, DependsOnEveryBitOfSeedAndPositionAndOnTheTry) {
  std::set<double> seen{uniform(0, 0)};
  for (uint32_t attempt = 1; attempt < 64; ++attempt)
    EXPECT_TRUE(seen.insert(uniform(0, 0, attempt)).second) << "try " << attempt;
  for (int b = 0; b < 64; ++b) {
    EXPECT_TRUE(seen.insert(uniform(uint64_t{1} << b, 0)).second) << "bit " << b << " of the seed";
    EXPECT_TRUE(seen.insert(uniform(0, static_cast<int64_t>(uint64_t{1} << b))).second)
        << "bit " << b << " of the position";
  }
  for (const double u : seen)
    EXPECT_TRUE(u >= 0.0 && u < 1.0);
}

TEST(Sampling, DependsOnSeedAndPositionAndNotOnTheSlot) {
  const std::vector<float> logits = test::normal_values(100, 1);
  SamplingRow row;
  std::vector<float> all;
  std::vector<SamplingRow> rows;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    for (int64_t position = 0; position < 40; ++position) {
      row.seed = seed;
      row.position = position;
      rows.push_back(row);
      all.insert(all.end(), logits.begin(), logits.end());
    }
  }
  const std::vector<SampledToken> together = sample(*make_cpu_backend(3), all, rows);
  std::map<int32_t, int> tokens;
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(sample_one(logits, rows[i]), together[i].token) << "row " << i;
    ++tokens[together[i].token];
  }
  EXPECT_GT(tokens.size(), 20u) << "seeds and positions change the token";
}

TEST(Sampling, IsTheSameOnEveryInstructionSet) {
  const std::vector<float> logits = test::normal_values(64 * 1003, 2, 3.0f);
  std::vector<SamplingRow> rows(64);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].position = static_cast<int64_t>(i);
    rows[i].top_p = i % 2 == 0 ? 1.0f : 0.9f;
  }
  const auto tokens = [&] {
    std::vector<int32_t> result;
    for (const SampledToken& token : sample(*make_cpu_backend(2), logits, rows))
      result.push_back(token.token);
    return result;
  };
  const std::vector<int32_t> expected = tokens();
  for (const std::string& isa : test::IsaScope::available()) {
    const test::IsaScope scope(isa);
    EXPECT_EQ(tokens(), expected) << isa;
  }
}

// --- The distribution
// --------------------------------------------------------------------------------------------

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
  const auto backend = make_cpu_backend(2);
  const GuardedTensor tensor(*backend, test::kChiSquareRows, std::ssize(logits), repeated(logits));
  return test::chi_square(row, probabilities, [&](std::span<const SamplingRow> rows) {
    std::vector<SampledToken> out(rows.size());
    test::sample(*backend, tensor.tensor(), rows, out);
    return out;
  });
}

void expect_distribution(const std::vector<float>& logits, const SamplingRow& row, const char* what) {
  const ChiSquare result = chi_square(logits, row, reference::distribution(logits, row));
  EXPECT_LT(result.statistic, result.limit()) << what;
}

TEST(Sampling, DrawsFromTheExactDistribution) {
  test::visit_drawn_rows(expect_distribution);
}

/// Without top_k, most rows take more than one try.
TEST(Sampling, TriesUntilATokenIsKept) {
  test::visit_tried_rows(expect_distribution);
}

TEST(Sampling, TheDistributionTestSeesAWrongTemperature) {
  const std::vector<float> logits = test::normal_values(200, 4, 2.0f);
  SamplingRow warmer;
  warmer.temperature = 1.05f;
  const ChiSquare result = chi_square(logits, SamplingRow{}, reference::distribution(logits, warmer));
  EXPECT_GT(result.statistic, result.limit());
}

TEST(Sampling, SupportSetsAreExact) {
  const std::vector<float> logits{1.0f, 3.0f, 2.0f, 3.0f, 0.0f, 2.5f, 0.5f, 2.0f};
  for (const int32_t top_k : {0, 1, 2, 3, 5, 6, 8, 100}) {
    for (const float top_p : {1.0f, 0.95f, 0.5f, 0.0f}) {
      for (const float min_p : {0.0f, 0.3f, 1.0f}) {
        SamplingRow row;
        row.top_k = top_k;
        row.top_p = top_p;
        row.min_p = min_p;
        EXPECT_EQ(drawn(logits, row), support(logits, row))
            << "top_k " << top_k << " top_p " << top_p << " min_p " << min_p;
      }
    }
  }
}

TEST(Sampling, TopKKeepsTheLowerTokensOfATie) {
  SamplingRow row;
  row.top_k = 3;
  EXPECT_EQ(drawn({1.0f, 1.0f, 5.0f, 1.0f, 1.0f}, row), (std::set<int32_t>{0, 1, 2}));
}

TEST(Sampling, CutsLargeVocabulariesAsTheReferenceDoes) {
  const std::vector<float> logits = test::normal_values(150'000, 6, 3.0f);
  for (const auto& [top_k, top_p] : {std::pair{50, 1.0f}, {0, 0.3f}, {1000, 0.9f}, {140'000, 1.0f}}) {
    SamplingRow row;
    row.top_k = top_k;
    row.top_p = top_p;
    const std::vector<double> probabilities = reference::distribution(logits, row);
    for (int64_t position = 0; position < 50; ++position) {
      row.position = position;
      EXPECT_GT(probabilities[sample_one(logits, row)], 0.0) << "top_k " << top_k << " top_p " << top_p;
    }
  }
}

TEST(Sampling, DrawsFromAMillionTokens) {
  constexpr int32_t kVocabulary = 1 << 20;
  std::vector<float> logits(kVocabulary, -1.0f);
  logits.back() = 30.0f;
  EXPECT_EQ(sample_one(logits, greedy()), kVocabulary - 1);
  EXPECT_EQ(sample_one(logits, SamplingRow{}), kVocabulary - 1);
  logits.back() = -1.0f;
  SamplingRow row;
  row.top_p = 0.5f;
  for (row.position = 0; row.position < 20; ++row.position)
    EXPECT_LT(sample_one(logits, row), kVocabulary / 2);
}

// --- Greedy, bias and penalties, by hand
// ----------------------------------------------------------------------------

TEST(Sampling, GreedyTakesTheLowestTokenOfATie) {
  EXPECT_EQ(sample_one({0.0f, 2.0f, 1.0f, 2.0f}, greedy()), 1);
  EXPECT_EQ(sample_one(std::vector<float>(1000, -3.0f), greedy()), 0);
  for (const int32_t at : {0, 15, 16, 17, 500, 999}) {
    std::vector<float> logits(1000, -1.0f);
    logits[at] = -0.5f;
    EXPECT_EQ(sample_one(logits, greedy()), at);
  }
}

TEST(Sampling, BiasIsAddedAndForbids) {
  SamplingRow row = greedy();
  const std::vector<LogitBias> biases{{0, -kInfinity}, {2, 0.75f}};
  row.biases = biases;
  EXPECT_EQ(sample_one({9.0f, 2.5f, 2.0f}, row), 2);  // 2.75 beats 2.5
  EXPECT_EQ(sample_one({9.0f, 3.0f, 2.0f}, row), 1);
  row.temperature = 1.0f;
  EXPECT_EQ(drawn({9.0f, 2.5f, 2.0f}, row), (std::set<int32_t>{1, 2}));
}

TEST(Sampling, RepetitionPenaltyDividesPositiveAndMultipliesNegativeLogits) {
  SamplingRow row = greedy();
  row.repetition_penalty = 2.0f;
  const std::vector<TokenCount> counts{{0, 0, true}, {1, 3, false}};
  row.counts = counts;
  EXPECT_EQ(sample_one({4.0f, 4.1f, 2.2f}, row), 2);     // 2.0, 2.05, 2.2
  EXPECT_EQ(sample_one({4.0f, 4.6f, 2.2f}, row), 1);     // 2.3: once, not three times
  EXPECT_EQ(sample_one({-1.0f, -1.1f, -2.1f}, row), 0);  // -2.0, -2.2, -2.1
  EXPECT_EQ(sample_one({-1.1f, -1.1f, -2.1f}, row), 2);
}

TEST(Sampling, PresencePenaltyCountsOnceAndOnlyOutput) {
  SamplingRow row = greedy();
  row.presence_penalty = 1.0f;
  const std::vector<TokenCount> counts{{0, 5, false}, {1, 0, true}};
  row.counts = counts;
  EXPECT_EQ(sample_one({3.0f, 1.9f}, row), 0);  // 2.0
  EXPECT_EQ(sample_one({3.0f, 2.1f}, row), 1);  // the prompt's token keeps 2.1
}

TEST(Sampling, FrequencyPenaltyCountsEveryTime) {
  SamplingRow row = greedy();
  row.frequency_penalty = 0.5f;
  const std::vector<TokenCount> counts{{0, 4, true}};
  row.counts = counts;
  EXPECT_EQ(sample_one({3.0f, 1.1f}, row), 1);  // 1.0
  EXPECT_EQ(sample_one({3.0f, 0.9f}, row), 0);
}

TEST(Sampling, PenaltiesComeAfterBias) {
  SamplingRow row = greedy();
  row.repetition_penalty = 2.0f;
  const std::vector<TokenCount> counts{{0, 1, false}};
  const std::vector<LogitBias> biases{{0, 2.0f}};
  row.counts = counts;
  row.biases = biases;
  EXPECT_EQ(sample_one({4.0f, 3.5f}, row), 1);  // (4 + 2) / 2 = 3, not 4 / 2 + 2 = 4
}

// --- Logprobs
// --------------------------------------------------------------------------------------------------------

TEST(Sampling, LogprobsAreOfTheRawDistribution) {
  const std::vector<float> logits = test::normal_values(500, 8, 2.0f);
  const std::vector<double> expected = reference::log_softmax(logits);
  SamplingRow row = greedy();
  const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const std::vector<LogitBias> biases{{best, -kInfinity}, {17, 100.0f}};
  row.biases = biases;
  row.top_logprobs = 5;
  const SampledToken token = sample(*make_cpu_backend(1), logits, {row})[0];
  EXPECT_EQ(token.token, 17);
  EXPECT_NEAR(token.logprob, expected[17], 1e-5);
  ASSERT_EQ(token.top.size(), 5u);
  EXPECT_EQ(token.top[0].token, best) << "the raw distribution, without the bias";
  std::vector<double> sorted = expected;
  std::sort(sorted.begin(), sorted.end(), std::greater{});
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(token.top[i].logprob, sorted[i], 1e-5);
    EXPECT_NEAR(token.top[i].logprob, expected[token.top[i].token], 1e-5);
  }
}

TEST(Sampling, LogprobsOfMoreTokensThanThereAre) {
  SamplingRow row = greedy();
  row.top_logprobs = 20;
  const SampledToken token = sample(*make_cpu_backend(1), {1.0f, 3.0f, 2.0f}, {row})[0];
  ASSERT_EQ(token.top.size(), 3u);
  EXPECT_EQ(token.top[0].token, 1);
  EXPECT_EQ(token.top[2].token, 0);
  row.top_logprobs = 0;
  EXPECT_TRUE(sample(*make_cpu_backend(1), {1.0f, 3.0f, 2.0f}, {row})[0].top.empty());
}

// --- Bad logits and bad rows
// -----------------------------------------------------------------------------------------

TEST(Sampling, NanIsNeverDrawn) {
  SamplingRow row;
  EXPECT_EQ(drawn({kNan, 1.0f, kNan, 1.0f, -kInfinity}, row), (std::set<int32_t>{1, 3}));
  row.top_k = 2;
  row.top_p = 0.99f;
  EXPECT_EQ(drawn({kNan, 1.0f, kNan, 1.0f, 0.5f}, row), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(sample_one({kNan, 1.0f, 2.0f, kNan}, greedy()), 2);
  EXPECT_EQ(sample_one({kNan, -kInfinity, -5.0f}, greedy()), 2);
}

TEST(Sampling, InfinityTakesAll) {
  EXPECT_EQ(drawn({1.0f, kInfinity, 2.0f}, SamplingRow{}), (std::set<int32_t>{1}));
}

TEST(Sampling, ARowWithoutAnyTokenDrawsNoneAndLeavesTheOthersAlone) {
  constexpr int64_t kVocabulary = 300;
  const std::vector<float> good = test::normal_values(4 * kVocabulary, 5);
  std::vector<LogitBias> forbidden;
  for (int32_t token = 0; token < kVocabulary; ++token)
    forbidden.push_back({token, -kInfinity});
  for (const float temperature : {0.0f, 1.0f}) {
    std::vector<SamplingRow> rows(4);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i].temperature = temperature;
      rows[i].seed = i;
      rows[i].top_logprobs = temperature == 0.0f ? -1 : 3;
    }
    const std::vector<SampledToken> expected = sample(*make_cpu_backend(2), good, rows);
    std::vector<float> logits = good;
    std::fill_n(logits.begin() + kVocabulary, kVocabulary, kNan);
    std::fill_n(logits.begin() + kVocabulary + 7, 9, -kInfinity);
    rows[2].biases = forbidden;
    const std::vector<SampledToken> out = sample(*make_cpu_backend(2), logits, rows);
    for (const size_t i : {0, 1, 2, 3}) {
      const bool is_poisoned = i == 1 || i == 2;
      EXPECT_EQ(out[i].is_drawn(), !is_poisoned) << "row " << i << ", temperature " << temperature;
      if (is_poisoned) continue;
      EXPECT_EQ(out[i].token, expected[i].token);
      EXPECT_EQ(out[i].logprob, expected[i].logprob);
      EXPECT_EQ(out[i].top.size(), expected[i].top.size());
    }
  }
}

TEST(Sampling, AForbiddenInfinityStaysForbidden) {
  const std::vector<LogitBias> biases{{1, -kInfinity}};
  SamplingRow row = greedy();
  row.biases = biases;
  EXPECT_EQ(sample_one({1.0f, kInfinity, 2.0f}, row), 2);
  row.temperature = 1.0f;
  EXPECT_EQ(drawn({1.0f, kInfinity, 2.0f}, row), (std::set<int32_t>{0, 2}));
}

TEST(Sampling, RefusesTokensOutsideTheVocabulary) {
  const auto backend = make_cpu_backend(1);
  for (const int32_t token : {-1, 3}) {
    SamplingRow row;
    const std::vector<LogitBias> biases{{token, 1.0f}};
    row.biases = biases;
    EXPECT_THROW(sample(*backend, {1.0f, 2.0f, 3.0f}, {row}), Error);
    row.biases = {};
    const std::vector<TokenCount> counts{{token, 1, false}};
    row.counts = counts;
    EXPECT_THROW(sample(*backend, {1.0f, 2.0f, 3.0f}, {row}), Error);
  }
}

TEST(Sampling, ExtremeTemperaturesStayFinite) {
  const std::vector<float> logits{1.0f, 2.0f, 1.5f};
  SamplingRow row;
  row.temperature = 1e-30f;
  EXPECT_EQ(drawn(logits, row), (std::set<int32_t>{1}));
  row.temperature = 1e30f;
  EXPECT_EQ(drawn(logits, row), (std::set<int32_t>{0, 1, 2}));
}

}  // namespace
}  // namespace minfer
