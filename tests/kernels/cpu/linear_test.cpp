#include <cstring>

#include <gtest/gtest.h>

#include "kernels/quant_types.h"
#include "tests/reference/dequantise.h"
#include "tests/support/cuda/device_data.h"
#include "tests/support/gate_activations.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::GuardedTensor;

constexpr int64_t kMaxTokens = 100;
constexpr int64_t kTokenCounts[] = {1, 2, 3, 5, 6, 7, 16, 17, 64, kMaxTokens};

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

/// Row lengths for a type: a block or less, some blocks, and several times the 1,024 columns that are
/// summed at a time.
std::vector<int64_t> row_lengths(DType dtype) {
  switch (traits(dtype).block_elements) {
    case 1:
      return {1, 17, 1024, 2055};
    case 32:
      return {32, 1024, 2080};
    case kFp8Block:  // rows may end within this block
      return {17, 704, 1024, 2055};
    default:
      return {256, 1024, 2816};
  }
}

/// A random weight [rows, cols] with its exact values.
struct RandomWeight {
  RandomWeight(DType dtype_of_blocks, int64_t row_count, int64_t col_count, uint64_t seed)
      : dtype(dtype_of_blocks),
        rows(row_count),
        cols(col_count),
        bytes(test::random_weights(dtype, rows, cols, seed)) {}
  Weight load(Backend& backend) const { return backend.load({"weight", bytes.data(), dtype, 1, rows, cols}); }
  reference::Matrix values() const { return reference::dequantise(bytes.data(), dtype, rows, cols); }

  DType dtype;
  int64_t rows;
  int64_t cols;
  std::vector<uint8_t> bytes;
};

/// The first `tokens` rows of [kMaxTokens, cols] values.
std::span<const float> first_rows(const std::vector<float>& values, int64_t tokens) {
  return {values.data(), values.size() / kMaxTokens * static_cast<size_t>(tokens)};
}

std::vector<float> multiply(Backend& backend, const RandomWeight& weight, const std::vector<float>& x,
                            int64_t tokens) {
  const GuardedTensor in(backend, tokens, weight.cols, first_rows(x, tokens));
  const GuardedTensor out(backend, tokens, weight.rows);
  const Weight loaded = weight.load(backend);
  backend.linear(0, {.x = in.tensor(), .weights = {&loaded, 1}, .out = out.tensor()});
  EXPECT_TRUE(out.intact());
  return out.values();
}

class LinearOfType : public testing::TestWithParam<DType> {};

TEST_P(LinearOfType, MatchesTheReferenceForAnyShapeAndATokenHasTheSameBitsInAnyBatch) {
  const auto backend = make_cpu_backend(2);
  for (const int64_t cols : row_lengths(GetParam())) {
    const RandomWeight weight(GetParam(), 23, cols, 1);
    const std::vector<float> x = test::normal_values(kMaxTokens * cols, 2);
    const std::vector<float> all = multiply(*backend, weight, x, kMaxTokens);
    const reference::Matrix expected =
        reference::linear(reference::to_matrix(x, kMaxTokens, cols), weight.values());
    EXPECT_LT(test::nmse(all, expected.data), 1e-12) << "K " << cols;
    for (const int64_t tokens : kTokenCounts) {
      EXPECT_TRUE(same_bits(multiply(*backend, weight, x, tokens), first_rows(all, tokens)))
          << "K " << cols << ", " << tokens << " tokens";
    }
  }
}

TEST_P(LinearOfType, GivesTheSameBitsForThreadsAndInstructionSets) {
  for (const int64_t rows : {1, 37}) {
    const int64_t cols = row_lengths(GetParam()).back();
    const RandomWeight weight(GetParam(), rows, cols, 3);
    const std::vector<float> x = test::normal_values(kMaxTokens * cols, 4);
    for (const int64_t tokens : {1, 7}) {
      const std::vector<float> expected = multiply(*make_cpu_backend(1), weight, x, tokens);
      for (const std::string& isa : test::IsaScope::available()) {
        const test::IsaScope scope(isa);
        for (const int32_t threads : {1, 2, 3}) {
          EXPECT_TRUE(same_bits(multiply(*make_cpu_backend(threads), weight, x, tokens), expected))
              << isa << ", " << threads << " threads, " << rows << " rows, " << tokens << " tokens";
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LinearOfType, testing::ValuesIn(test::every_dtype()),
                         [](const auto& param_info) { return std::string(name(param_info.param)); });

TEST(Linear, PutsSeveralWeightsSideBySideWithBiasesAndAddsToTheResidual) {
  constexpr int64_t kCols = 512;
  const auto backend = make_cpu_backend(2);
  const std::vector<RandomWeight> weights = {
      {DType::q4_k, 48, kCols, 1}, {DType::bf16, 3, kCols, 2}, {DType::q6_k, 17, kCols, 3}};
  const std::vector<float> bias_values = test::normal_values(48 + 17, 4);
  std::vector<Weight> loaded;
  for (const RandomWeight& weight : weights)
    loaded.push_back(weight.load(*backend));
  const std::vector<Weight> biases = {test::load_vector(*backend, std::span(bias_values).first(48)), Weight{},
                                      test::load_vector(*backend, std::span(bias_values).last(17))};
  for (const int64_t tokens : {1, 9}) {
    const std::vector<float> x = test::normal_values(tokens * kCols, 5);
    const std::vector<float> residual = test::normal_values(tokens * 68, 6);
    const GuardedTensor in(*backend, tokens, kCols, x);
    const GuardedTensor out(*backend, tokens, 68, residual);
    backend->linear(0, {in.tensor(), loaded, biases, out.tensor(), true});
    EXPECT_TRUE(out.intact());

    std::vector<double> expected;
    const reference::Matrix x_matrix = reference::to_matrix(x, tokens, kCols);
    for (int64_t t = 0; t < tokens; ++t) {
      for (size_t i = 0; i < weights.size(); ++i) {
        const reference::Matrix product = reference::linear(x_matrix, weights[i].values());
        for (int64_t r = 0; r < weights[i].rows; ++r) {
          const double bias = i == 0 ? bias_values[r] : i == 2 ? bias_values[48 + r] : 0.0;
          expected.push_back(residual[expected.size()] + product.at(t, r) + bias);
        }
      }
    }
    EXPECT_LT(test::nmse(out.values(), expected), 1e-12) << tokens << " tokens";
  }
}

std::vector<float> gate_up(Backend& backend, const RandomWeight& gate, const RandomWeight& up,
                           const std::vector<float>& x, int64_t tokens) {
  const GuardedTensor in(backend, tokens, gate.cols, first_rows(x, tokens));
  const GuardedTensor out(backend, tokens, gate.rows);
  backend.gate_up_swiglu(0, {in.tensor(), gate.load(backend), up.load(backend), out.tensor()});
  EXPECT_TRUE(out.intact());
  return out.values();
}

TEST(GateUpSwiglu, MatchesTheReferenceAndGivesTheSameBitsForBatchesThreadsAndInstructionSets) {
  constexpr int64_t kCols = 1280;
  const std::vector<float> x = test::normal_values(kMaxTokens * kCols, 1, 0.05f);
  for (const auto& [gate_type, up_type] :
       {std::pair(DType::bf16, DType::bf16), std::pair(DType::q4_k, DType::q6_k)}) {
    const RandomWeight gate(gate_type, 75, kCols, 2);
    const RandomWeight up(up_type, 75, kCols, 3);
    const std::vector<float> all = gate_up(*make_cpu_backend(1), gate, up, x, kMaxTokens);
    const reference::Matrix expected =
        reference::gate_up_swiglu(reference::to_matrix(x, kMaxTokens, kCols), gate.values(), up.values());
    EXPECT_LT(test::nmse(all, expected.data), 1e-12) << name(gate_type);
    for (const std::string& isa : test::IsaScope::available()) {
      const test::IsaScope scope(isa);
      for (const int64_t tokens : {1, 2, 17}) {
        EXPECT_TRUE(same_bits(gate_up(*make_cpu_backend(3), gate, up, x, tokens), first_rows(all, tokens)))
            << name(gate_type) << ' ' << isa << ", " << tokens << " tokens";
      }
    }
  }
}

class GateUpActivation : public testing::TestWithParam<test::NamedActivation> {};

TEST_P(GateUpActivation, MatchesTheReferenceWithBiasesOnEveryInstructionSet) {
  constexpr int64_t kOutputs = 75, kCols = 160;
  const GateActivation activation = GetParam().activation;
  const RandomWeight gate(DType::bf16, kOutputs, kCols, 2), up(DType::bf16, kOutputs, kCols, 3);
  const std::vector<float> x = test::normal_values(kMaxTokens * kCols, 1, 1.0f);
  const reference::GateUpBiases biases = test::gate_up_biases(1, kOutputs);
  for (const bool has_gate_bias : {false, true}) {
    for (const bool has_up_bias : {false, true}) {
      const reference::GateUpBiases given{.gate = has_gate_bias ? biases.gate : std::vector<float>(),
                                          .up = has_up_bias ? biases.up : std::vector<float>()};
      const reference::Matrix expected = reference::gate_up_swiglu(
          reference::to_matrix(x, kMaxTokens, kCols), gate.values(), up.values(), activation, given);
      std::vector<float> all;
      for (const std::string& isa : test::IsaScope::available()) {
        const test::IsaScope scope(isa);
        for (const int64_t tokens : {kMaxTokens, int64_t{1}, int64_t{5}}) {
          const auto backend = make_cpu_backend(2);
          const GuardedTensor in(*backend, tokens, kCols, first_rows(x, tokens));
          const GuardedTensor out(*backend, tokens, kOutputs);
          backend->gate_up_swiglu(
              0, {.x = in.tensor(),
                  .gate = gate.load(*backend),
                  .up = up.load(*backend),
                  .out = out.tensor(),
                  .activation = activation,
                  .gate_bias = has_gate_bias ? test::load_vector(*backend, given.gate) : Weight{},
                  .up_bias = has_up_bias ? test::load_vector(*backend, given.up) : Weight{}});
          EXPECT_TRUE(out.intact());
          if (all.empty()) all = out.values();
          EXPECT_TRUE(same_bits(out.values(), first_rows(all, tokens))) << isa << ", " << tokens << " tokens";
        }
      }
      EXPECT_LT(test::nmse(all, expected.data), 1e-12) << has_gate_bias << has_up_bias;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, GateUpActivation, testing::ValuesIn(test::kGateActivations),
                         [](const auto& kind) { return std::string(kind.param.name); });

TEST(Linear, OfNoTokensDoesNothing) {
  const auto backend = make_cpu_backend(2);
  const RandomWeight weight(DType::q8_0, 4, 64, 1);
  EXPECT_TRUE(multiply(*backend, weight, test::normal_values(kMaxTokens * 64, 2), 0).empty());
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  const auto backend = make_cpu_backend(1);
  const Weight weight = RandomWeight(DType::q8_0, 4, 64, 1).load(*backend);
  const Weight bias{&weight, DType::f32, 1, 1, 3};
  const GuardedTensor x(*backend, 2, 64);
  const GuardedTensor narrow(*backend, 2, 32);
  const GuardedTensor out(*backend, 2, 4);
  const GuardedTensor wide(*backend, 2, 5);
  EXPECT_THROW(backend->linear(0, {.x = narrow.tensor(), .weights = {&weight, 1}, .out = out.tensor()}),
               Error);
  EXPECT_THROW(backend->linear(0, {.x = x.tensor(), .weights = {&weight, 1}, .out = wide.tensor()}), Error);
  EXPECT_THROW(backend->linear(0, {x.tensor(), {&weight, 1}, {&bias, 1}, out.tensor()}), Error);
  EXPECT_THROW(backend->gate_up_swiglu(0, {x.tensor(), weight, weight, wide.tensor()}), Error);
  for (const bool of_gate : {true, false}) {
    EXPECT_THROW(backend->gate_up_swiglu(0, {.x = x.tensor(),
                                             .gate = weight,
                                             .up = weight,
                                             .out = out.tensor(),
                                             .gate_bias = of_gate ? bias : Weight{},
                                             .up_bias = of_gate ? Weight{} : bias}),
                 Error);
  }
}

}  // namespace
}  // namespace minfer
