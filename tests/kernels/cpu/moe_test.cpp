#include <cmath>

#include <gtest/gtest.h>

#include "tests/reference/dequantise.h"
#include "tests/support/cuda/device_data.h"
#include "tests/support/expert_choices.h"
#include "tests/support/gate_activations.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::DeviceArray;
using test::GuardedTensor;

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
  bool operator==(const Routed&) const = default;
};

Routed route(Backend& backend, const std::vector<float>& logits, int64_t experts, int32_t used,
             const ExpertChoice& choice = {}, const std::vector<float>& bias = {},
             const std::vector<float>& scales = {}) {
  const int64_t tokens = std::ssize(logits) / experts;
  const GuardedTensor tensor(backend, tokens, experts, logits);
  const DeviceArray<int32_t> ids(backend, std::vector<int32_t>(static_cast<size_t>(tokens * used), -7));
  const DeviceArray<float> weights(backend, std::vector<float>(static_cast<size_t>(tokens * used), NAN));
  const auto load = [&](const std::vector<float>& values) {
    return values.empty() ? Weight{}
                          : backend.load({"vector", values.data(), DType::f32, 1, 1, std::ssize(values)});
  };
  backend.moe_route(0, {tensor.tensor(), used, choice, load(bias), ids.data(), weights.data(), load(scales)});
  return {ids.values(), weights.values()};
}

/// Compares five tokens with the reference.
void expect_routed(const test::ChoiceCase& c) {
  const std::vector<float> logits = test::normal_values(5 * c.experts, 3, 2.0f);
  const Routed routed = route(*make_cpu_backend(2), logits, c.experts, c.used, c.choice, c.bias());
  std::vector<int32_t> ids;
  std::vector<double> weights;
  for (int64_t t = 0; t < 5; ++t) {
    const std::span<const float> row(logits.data() + t * c.experts, static_cast<size_t>(c.experts));
    const reference::ChosenExperts expected = reference::moe_route(row, c.used, c.choice, c.bias());
    ids.insert(ids.end(), expected.experts.begin(), expected.experts.end());
    weights.insert(weights.end(), expected.weights.begin(), expected.weights.end());
  }
  EXPECT_EQ(routed.experts, ids) << c.used << " of " << c.experts;
  EXPECT_LT(test::nmse(routed.weights, weights), 1e-12) << c.used << " of " << c.experts;
}

TEST(MoeRoute, MatchesTheReference) {
  for (const int64_t experts : {1, 2, 8, 17, 60, 128}) {
    for (const int32_t used : {1, 2, 8}) {
      if (used > experts) continue;
      for (const bool normalise : {true, false})
        expect_routed({experts, used, {.normalise = normalise, .scale = 1.5f}, false});
    }
  }
}

TEST(MoeRoute, MatchesTheReferenceInFamiliesWays) {
  for (const test::ChoiceCase& c : test::choice_cases())
    expect_routed(c);
}

TEST(MoeRoute, ScalesOfExpertsMultiplyTheirWeights) {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> logits = test::normal_values(5 * 17, 4, 2.0f), scales = test::normal_values(17, 5);
  Routed expected = route(*backend, logits, 17, 3);
  for (size_t i = 0; i < expected.weights.size(); ++i)
    expected.weights[i] *= scales[static_cast<size_t>(expected.experts[i])];
  EXPECT_EQ(route(*backend, logits, 17, 3, {}, {}, scales), expected);
}

TEST(MoeRoute, ABiasDecidesAndDoesNotWeigh) {
  const Routed routed = route(*make_cpu_backend(1), {0.0f, 0.0f, 0.0f}, 3, 2,
                              {.score = ExpertScore::sigmoid, .normalise = false}, {-3.0f, -5.0f, -1.0f});
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(routed.weights, (std::vector<float>{0.5f, 0.5f}));
}

TEST(MoeRoute, AGroupIsWorthItsBestOneOrTwo) {
  // The best expert is in the first group, the best pair in the second.
  const std::vector<float> logits{3.0f, -4.0f, 2.0f, 2.0f};
  for (const auto& [best, experts] :
       {std::pair{1, std::vector<int32_t>{0, 1}}, {2, std::vector<int32_t>{2, 3}}}) {
    const ExpertChoice choice{
        .score = ExpertScore::sigmoid, .groups = 2, .groups_used = 1, .group_best = best};
    EXPECT_EQ(route(*make_cpu_backend(1), logits, 4, 2, choice).experts, experts) << best;
  }
}

TEST(MoeRoute, ScoresThatVanishWeighNothing) {
  const Routed routed =
      route(*make_cpu_backend(1), {-200.0f, -300.0f}, 2, 2, {.score = ExpertScore::sigmoid});
  for (const float weight : routed.weights)
    EXPECT_LT(weight, 1e-9f);
}

TEST(MoeRoute, TiesGoToTheLowerExpert) {
  const Routed routed = route(*make_cpu_backend(1), {1.0f, 2.0f, 1.0f, 2.0f, 1.0f}, 5, 3);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{1, 3, 0}));
  EXPECT_EQ(routed.weights[0], routed.weights[1]);
}

TEST(MoeRoute, GivesTheSameBitsAloneAndOnEveryInstructionSet) {
  const std::vector<float> logits = test::normal_values(7 * 60, 4), bias = test::normal_values(60, 5);
  for (const ExpertChoice& choice :
       {ExpertChoice{}, {.score = ExpertScore::sigmoid, .groups = 6, .groups_used = 2}}) {
    const Routed expected = route(*make_cpu_backend(1), logits, 60, 4, choice, bias);
    const Routed last = route(*make_cpu_backend(1), {logits.end() - 60, logits.end()}, 60, 4, choice, bias);
    EXPECT_EQ(last.weights, std::vector<float>(expected.weights.end() - 4, expected.weights.end()));
    for (const std::string& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      EXPECT_EQ(route(*make_cpu_backend(3), logits, 60, 4, choice, bias), expected) << isa;
    }
  }
}

TEST(MoeRoute, RefusesWhatCannotBeChosen) {
  for (const test::ChoiceCase& c : test::refused_choices()) {
    EXPECT_THROW(route(*make_cpu_backend(1), test::normal_values(c.experts, 1), c.experts, c.used, c.choice),
                 Error)
        << c.used << " of " << c.experts << " in " << c.choice.groups << " groups";
  }
  EXPECT_THROW(route(*make_cpu_backend(1), {1.0f, 2.0f}, 2, 1, {}, {1.0f}), Error)
      << "a bias of another size";
}

constexpr int64_t kTokens = 9;
constexpr int64_t kHidden = 256;
constexpr int64_t kFeed = 512;
constexpr int64_t kExperts = 6;
constexpr int32_t kUsed = 2;

/// A feed-forward layer of experts, its weights of one type, and its routes.
class Experts {
 public:
  explicit Experts(DType dtype)
      : dtype_(dtype),
        gate_(test::random_weights(dtype, kExperts * kFeed, kHidden, 1)),
        up_(test::random_weights(dtype, kExperts * kFeed, kHidden, 2)),
        down_(test::random_weights(dtype, kExperts * kHidden, kFeed, 3)),
        x_(test::normal_values(kTokens * kHidden, 4)),
        residual_(test::normal_values(kTokens * kHidden, 5)),
        logits_(test::normal_values(kTokens * kExperts, 6)) {}

  /// Returns the residual plus the layer's output.
  std::vector<float> on(Backend& backend, GateActivation activation = GateActivation::silu,
                        const reference::GateUpBiases& biases = {}, const std::vector<float>& down_bias = {},
                        bool weights_input = false) const {
    const Routed routed = route(backend, logits_, kExperts, kUsed);
    const DeviceArray<int32_t> ids(backend, routed.experts);
    const DeviceArray<float> weights(backend, routed.weights);
    const GuardedTensor x(backend, kTokens, kHidden, x_);
    const GuardedTensor hidden(backend, kTokens * kUsed, kFeed);
    const GuardedTensor out(backend, kTokens, kHidden, residual_);
    const Weight gate = backend.load({"gate", gate_.data(), dtype_, kExperts, kFeed, kHidden});
    const Weight up = backend.load({"up", up_.data(), dtype_, kExperts, kFeed, kHidden});
    const Weight down = backend.load({"down", down_.data(), dtype_, kExperts, kHidden, kFeed});
    backend.moe_gate_up_swiglu(
        0, {x.tensor(), gate, up, ids.data(), kUsed, hidden.tensor(), activation,
            load_biases(backend, biases.gate, kFeed), load_biases(backend, biases.up, kFeed),
            weights_input ? weights.data() : nullptr});
    backend.moe_down(1, {hidden.tensor(), down, ids.data(), weights.data(), kUsed, out.tensor(), true,
                         load_biases(backend, down_bias, kHidden)});
    EXPECT_TRUE(hidden.intact() && out.intact());
    EXPECT_EQ(x.values(), x_);
    return out.values();
  }

  std::vector<double> reference(GateActivation activation = GateActivation::silu,
                                const reference::GateUpBiases& biases = {},
                                const std::vector<float>& down_bias = {}, bool weights_input = false) const {
    std::vector<reference::Matrix> gate, up, down;
    for (int64_t e = 0; e < kExperts; ++e) {
      const size_t bytes = static_cast<size_t>(kFeed) * row_bytes(dtype_, kHidden);
      const auto expert = static_cast<size_t>(e);
      gate.push_back(reference::dequantise(gate_.data() + expert * bytes, dtype_, kFeed, kHidden));
      up.push_back(reference::dequantise(up_.data() + expert * bytes, dtype_, kFeed, kHidden));
      down.push_back(reference::dequantise(down_.data() + expert * bytes, dtype_, kHidden, kFeed));
    }
    std::vector<reference::ChosenExperts> routes;
    for (int64_t t = 0; t < kTokens; ++t) {
      const std::span<const float> row(logits_.data() + t * kExperts, kExperts);
      routes.push_back(reference::moe_route(row, kUsed));
    }
    const reference::Matrix x = reference::to_matrix(x_, kTokens, kHidden);
    reference::Matrix out = reference::moe_down(
        reference::moe_gate_up_swiglu(x, gate, up, routes, activation, biases, weights_input), down, routes,
        down_bias);
    for (size_t i = 0; i < out.data.size(); ++i)
      out.data[i] += residual_[i];
    return out.data;
  }

 private:
  static Weight load_biases(Backend& backend, const std::vector<float>& biases, int64_t cols) {
    if (biases.empty()) return {};
    return backend.load({"biases", biases.data(), DType::f32, 1, kExperts, cols});
  }

  DType dtype_;
  std::vector<uint8_t> gate_, up_, down_;
  std::vector<float> x_, residual_, logits_;
};

TEST(MoeLayer, MatchesTheReference) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::q8_0, DType::q4_k}) {
    const Experts experts(dtype);
    EXPECT_LT(test::nmse(experts.on(*make_cpu_backend(2)), experts.reference()), 1e-11) << name(dtype);
  }
}

TEST(MoeLayer, AddsABiasOfEachExpertBeforeItsWeight) {
  const std::vector<float> bias = test::normal_values(kExperts * kHidden, 31);
  for (const DType dtype : {DType::bf16, DType::q8_0}) {
    const Experts experts(dtype);
    const std::vector<float> found = experts.on(*make_cpu_backend(2), GateActivation::silu, {}, bias);
    EXPECT_LT(test::nmse(found, experts.reference(GateActivation::silu, {}, bias)), 1e-11) << name(dtype);
    EXPECT_EQ(found, experts.on(*make_cpu_backend(1), GateActivation::silu, {}, bias)) << "other threads";
  }
}

TEST(MoeLayer, WeighsWhatExpertsAreGiven) {
  const reference::GateUpBiases biases = test::gate_up_biases(kExperts, kFeed);
  for (const DType dtype : {DType::f32, DType::q8_0}) {
    const Experts experts(dtype);
    for (const GateActivation activation : {GateActivation::silu, GateActivation::clamped_swiglu}) {
      const auto found = experts.on(*make_cpu_backend(2), activation, biases, {}, true);
      EXPECT_LT(test::nmse(found, experts.reference(activation, biases, {}, true)), 1e-11) << name(dtype);
      EXPECT_EQ(found, experts.on(*make_cpu_backend(1), activation, biases, {}, true)) << "other threads";
      EXPECT_GT(test::nmse(found, experts.reference(activation, biases)), 1e-4) << name(dtype);
    }
  }
}

class MoeActivation : public testing::TestWithParam<test::NamedActivation> {};

TEST_P(MoeActivation, MatchesTheReferenceWithABiasForEachExpert) {
  const Experts experts(DType::bf16);
  const GateActivation activation = GetParam().activation;
  const reference::GateUpBiases biases = test::gate_up_biases(kExperts, kFeed);
  for (const reference::GateUpBiases& given :
       {reference::GateUpBiases{}, biases, {.gate = biases.gate, .up = {}}}) {
    EXPECT_LT(
        test::nmse(experts.on(*make_cpu_backend(2), activation, given), experts.reference(activation, given)),
        1e-11);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MoeActivation, testing::ValuesIn(test::kGateActivations),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(MoeLayer, GivesTheSameBitsForThreadsAndInstructionSets) {
  const Experts experts(DType::q8_0);
  const std::vector<float> expected = experts.on(*make_cpu_backend(1));
  for (const std::string& isa : test::IsaScope::available()) {
    const test::IsaScope scope(isa);
    for (const int32_t threads : {2, 3})
      EXPECT_EQ(experts.on(*make_cpu_backend(threads)), expected) << isa;
  }
}

}  // namespace
}  // namespace minfer
