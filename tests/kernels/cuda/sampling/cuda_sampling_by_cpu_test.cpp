// Rows drawn on CUDA and on the CPU.
#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_sampler.h"
#include "tests/support/random_data.h"
#include "tests/support/random_rows.h"

namespace minfer {
namespace {

using test::RandomRows;
using test::sample;

class CudaSamplingByCpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

/// How many rows drew other tokens than on the CPU. Also compares the logprobs.
int differences(const std::vector<float>& logits, const std::vector<SamplingRow>& rows) {
  const std::vector<SampledToken> found = sample(logits, rows);
  const std::vector<SampledToken> expected = test::sample_on_cpu(logits, rows);
  int count = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (found[i].token != expected[i].token) {
      ++count;
      continue;
    }
    if (rows[i].top_logprobs < 0) continue;
    EXPECT_NEAR(found[i].logprob, expected[i].logprob, 1e-5f);
    EXPECT_EQ(found[i].top.size(), expected[i].top.size());
    for (size_t k = 0; k < std::min(found[i].top.size(), expected[i].top.size()); ++k) {
      EXPECT_EQ(found[i].top[k].token, expected[i].top[k].token) << "row " << i << ", place " << k;
      EXPECT_NEAR(found[i].top[k].logprob, expected[i].top[k].logprob, 1e-5f);
    }
  }
  return count;
}

TEST_F(CudaSamplingByCpu, DrawsTheCpuBackendsTokens) {
  int rows_drawn = 0;
  int different = 0;
  for (const int64_t vocabulary : {1, 5, 512, 1003, 32000, 128256, 200064, 262208, 1 << 20}) {
    const int rows = vocabulary > 250000 ? 10 : vocabulary > 10000 ? 40 : 400;
    const std::vector<float> normal = test::normal_values(rows * vocabulary, 7);
    for (const auto& [deviation, dtype] :
         {std::pair{1.0f, DType::f32}, {4.0f, DType::f32}, {2.0f, DType::bf16}, {0.0f, DType::f32}}) {
      std::vector<float> logits = normal;
      for (float& logit : logits)
        logit *= deviation;
      logits = test::rounded(logits, dtype);
      const RandomRows random(rows, vocabulary, static_cast<uint64_t>(vocabulary));
      const int count = differences(logits, random.rows());
      EXPECT_LE(count, rows / 20) << "vocabulary " << vocabulary << ", deviation " << deviation;
      different += count;
      rows_drawn += rows;
    }
  }
  RecordProperty("different", different);
  EXPECT_LT(different, rows_drawn / 1000) << "of " << rows_drawn;
}

/// Rows of many kinds in one launch: each draws the CPU backend's token, whichever way its cut is found.
TEST_F(CudaSamplingByCpu, CutsRowsOfAnyShapeWhereTheCpuBackendDoes) {
  constexpr int64_t kVocabulary = 50257;
  constexpr int kKinds = 8;
  const auto shaped = [&](int kind, std::span<float> logits) {
    for (size_t i = 0; i < logits.size(); ++i) {
      float& logit = logits[i];
      if (kind == 1) logit = -3.0f;                            // all alike
      if (kind == 2) logit = std::round(4.0f * logit) / 4.0f;  // few values, thousands of tokens each
      if (kind == 3 && i % 3 != 0) logit = -std::numeric_limits<float>::infinity();
      if (kind == 4) logit = 1.0f + 1e-6f * logit;  // alike except for the last bits
      if (kind == 5) logit *= 30.0f;                // hardly any token except the first
      if (kind == 6 && i == logits.size() - 1) logit = 100.0f;
      if (kind == 7 && i % 1000 == 0) logit = -1e30f;
    }
  };
  std::vector<SamplingRow> rows;
  for (const float temperature : {0.2f, 1.0f, 1.7f}) {
    for (const float top_p : {1e-9f, 0.3f, 0.9f, 0.999f, 1.0f - 1e-6f, 1.0f}) {
      for (const int32_t top_k : {0, 1, 50, 3000}) {
        SamplingRow row;
        row.temperature = temperature;
        row.top_p = top_p;
        row.top_k = top_k;
        row.min_p = rows.size() % 5 == 0 ? 0.02f : 0.0f;
        row.seed = rows.size();
        rows.push_back(row);
      }
    }
  }
  for (int kind = 0; kind < kKinds; ++kind) {
    std::vector<float> logits = test::normal_values(std::ssize(rows) * kVocabulary, 11, 2.0f);
    for (size_t i = 0; i < rows.size(); ++i)
      shaped(kind, std::span(logits).subspan(i * kVocabulary, kVocabulary));
    EXPECT_LE(differences(logits, rows), 1) << "kind " << kind;
  }
}

}  // namespace
}  // namespace minfer
