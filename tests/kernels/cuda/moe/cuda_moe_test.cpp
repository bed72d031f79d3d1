#include <cmath>
#include <span>
#include <utility>

#include <gtest/gtest.h>

#include "kernels/cuda/moe/moe_route.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/expert_choices.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaRun;
using test::CudaTensor;

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Routed route(const std::vector<float>& logits, DType dtype, int64_t experts, int32_t used,
             const ExpertChoice& choice = {}, const std::vector<float>& bias = {},
             const std::vector<float>& scales = {}) {
  const int64_t tokens = std::ssize(logits) / experts;
  const CudaTensor tensor(dtype, tokens, experts, logits);
  const CudaArray<float> biases(bias.empty() ? std::vector<float>(1) : bias);
  const CudaArray<float> factors(scales.empty() ? std::vector<float>(1) : scales);
  const auto weight = [](const std::vector<float>& values, const CudaArray<float>& on_device) {
    return Weight{.data = values.empty() ? nullptr : on_device.data(),
                  .dtype = DType::f32,
                  .rows = 1,
                  .cols = std::ssize(values)};
  };
  const CudaArray<int32_t> ids(std::vector<int32_t>(static_cast<size_t>(tokens * used), -7));
  const CudaArray<float> weights(std::vector<float>(static_cast<size_t>(tokens * used), NAN));
  const CudaRun run;
  cuda::Launch launch = run.launch();
  cuda::moe_route(launch, {tensor.tensor(), used, choice, weight(bias, biases), ids.data(), weights.data(),
                           weight(scales, factors)});
  return {ids.values(), weights.values()};
}

/// Compares nine tokens with the reference.
void expect_routed(const test::ChoiceCase& c, DType dtype) {
  constexpr int64_t kTokens = 9;
  const std::vector<float> logits = test::rounded(test::normal_values(kTokens * c.experts, 3, 2.0f), dtype);
  const Routed routed = route(logits, dtype, c.experts, c.used, c.choice, c.bias());
  std::vector<int32_t> ids;
  std::vector<double> weights;
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::span<const float> row(logits.data() + t * c.experts, static_cast<size_t>(c.experts));
    const reference::ChosenExperts expected = reference::moe_route(row, c.used, c.choice, c.bias());
    ids.insert(ids.end(), expected.experts.begin(), expected.experts.end());
    weights.insert(weights.end(), expected.weights.begin(), expected.weights.end());
  }
  EXPECT_EQ(routed.experts, ids) << c.used << " of " << c.experts << " " << name(dtype);
  EXPECT_LT(test::nmse(routed.weights, weights), 1e-12) << c.used << " of " << c.experts;
}

class CudaMoeRoute : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(CudaMoeRoute, MatchesTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t experts : {1, 2, 8, 33, 60, 128, 256, 511}) {
      for (const int32_t used : {1, 2, 8}) {
        if (used > experts) continue;
        for (const bool normalise : {true, false})
          expect_routed({experts, used, {.normalise = normalise, .scale = 1.5f}, false}, dtype);
      }
    }
  }
}

TEST_F(CudaMoeRoute, ScalesOfExpertsMultiplyTheirWeights) {
  for (const int64_t experts : {17, 128}) {
    const std::vector<float> logits = test::normal_values(9 * experts, 4, 2.0f),
                             scales = test::normal_values(experts, 5);
    const Routed plain = route(logits, DType::f32, experts, 3);
    const Routed scaled = route(logits, DType::f32, experts, 3, {}, {}, scales);
    EXPECT_EQ(scaled.experts, plain.experts);
    for (size_t i = 0; i < plain.weights.size(); ++i)
      EXPECT_EQ(scaled.weights[i], plain.weights[i] * scales[static_cast<size_t>(plain.experts[i])]) << i;
  }
}

/// Only with logits in f32: many bf16 logits are alike, and their scores tie differently in f32 and in double precision.
TEST_F(CudaMoeRoute, MatchesTheReferenceInFamiliesWays) {
  for (const test::ChoiceCase& c : test::choice_cases())
    expect_routed(c, DType::f32);
}

TEST_F(CudaMoeRoute, ABiasDecidesAndDoesNotWeigh) {
  const Routed routed = route({0.0f, 0.0f, 0.0f}, DType::f32, 3, 2,
                              {.score = ExpertScore::sigmoid, .normalise = false}, {-3.0f, -5.0f, -1.0f});
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(routed.weights, (std::vector<float>{0.5f, 0.5f}));
}

TEST_F(CudaMoeRoute, AGroupIsWorthItsBestOneOrTwo) {
  const std::vector<float> logits{3.0f, -4.0f, 2.0f, 2.0f};
  for (const auto& [best, experts] :
       {std::pair{1, std::vector<int32_t>{0, 1}}, {2, std::vector<int32_t>{2, 3}}}) {
    const ExpertChoice choice{
        .score = ExpertScore::sigmoid, .groups = 2, .groups_used = 1, .group_best = best};
    EXPECT_EQ(route(logits, DType::f32, 4, 2, choice).experts, experts) << best;
  }
}

TEST_F(CudaMoeRoute, NotesTheExpertsOfTokensThatAreNoPadding) {
  for (const int64_t experts : {8, 33, 128, 512}) {
    for (const auto& [tokens, real] : {std::pair{1, 1}, {4, 3}, {16, 9}, {2048, 2048}, {7, 0}}) {
      constexpr int32_t kUsed = 8;
      const std::vector<float> logits = test::normal_values(tokens * experts, 5, 2.0f);
      const CudaTensor tensor(DType::f32, tokens, experts, logits);
      const CudaArray<int32_t> ids(std::vector<int32_t>(static_cast<size_t>(tokens * kUsed), -7));
      const CudaArray<float> weights(std::vector<float>(static_cast<size_t>(tokens * kUsed), NAN));
      const auto words = static_cast<size_t>((experts + 31) / 32);
      const CudaArray<uint32_t> bits(std::vector<uint32_t>(words, 0));
      const CudaArray<int32_t> num_tokens(std::vector<int32_t>{real});
      const CudaRun run;
      cuda::Launch launch = run.launch();
      cuda::moe_route(launch, {tensor.tensor(), kUsed, {}, {}, ids.data(), weights.data()},
                      {.bits = bits.data(), .num_tokens = num_tokens.data()});
      run.wait();
      std::vector<uint32_t> expected(words, 0);
      const std::vector<int32_t> chosen = ids.values();
      for (const int32_t expert : std::span(chosen).first(static_cast<size_t>(real * kUsed)))
        expected[static_cast<size_t>(expert / 32)] |= 1u << expert % 32;
      EXPECT_EQ(bits.values(), expected) << experts << " experts, " << real << " of " << tokens << " tokens";
    }
  }
}

TEST_F(CudaMoeRoute, TiesGoToTheLowerExpert) {
  std::vector<float> logits(64, 1.0f);
  logits[63] = logits[40] = logits[8] = 2.0f;
  const Routed routed = route(logits, DType::f32, 64, 5);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{8, 40, 63, 0, 1}));
  EXPECT_EQ(routed.weights[0], routed.weights[2]);
  EXPECT_EQ(route({-0.0f, 0.0f}, DType::f32, 2, 1).experts, (std::vector<int32_t>{0}));
}

TEST_F(CudaMoeRoute, ExpertsAreValidAndDifferentWhateverTheLogits) {
  const std::vector<float> logits{NAN, 1.0f, NAN, 3.0f, INFINITY, NAN, -INFINITY, -INFINITY,
                                  NAN, NAN,  NAN, NAN,  NAN,      NAN, NAN,       NAN};
  EXPECT_EQ(route(logits, DType::f32, 8, 4).experts, (std::vector<int32_t>{4, 3, 1, 0, 0, 1, 2, 3}));
  const ExpertChoice in_groups{.score = ExpertScore::sigmoid, .groups = 2, .groups_used = 1};
  EXPECT_EQ(route(logits, DType::f32, 8, 4, in_groups).experts,
            (std::vector<int32_t>{3, 1, 0, 2, 0, 1, 2, 3}));
}

TEST_F(CudaMoeRoute, RefusesWhatItCannotDo) {
  for (const test::ChoiceCase& c : test::refused_choices())
    EXPECT_ANY_THROW(route(test::normal_values(c.experts, 1), DType::f32, c.experts, c.used, c.choice));
  EXPECT_ANY_THROW(route({1.0f, 2.0f}, DType::f32, 2, 1, {}, {1.0f}));
  EXPECT_ANY_THROW(route(std::vector<float>(513, 1.0f), DType::f32, 513, 2));
  EXPECT_ANY_THROW(route({1.0f, 2.0f}, DType::f16, 2, 1));
}

}  // namespace
}  // namespace minfer
