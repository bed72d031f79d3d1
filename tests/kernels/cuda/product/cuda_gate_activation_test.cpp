#include <gtest/gtest.h>

#include "kernels/cuda/product/linear.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"
#include "tests/support/cuda/product_calls.h"
#include "tests/support/gate_activations.h"
#include "tests/support/models/fixtures.h"

/// Every activation and bias of gate and up, at the end of every kernel that may compute them. The kernels differ by the weights' type,
/// by the number of tokens, and by whether rows divide by eight.
namespace minfer::cuda {
namespace {

using reference::GateUpBiases;
using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::first_rows;
using test::random_activations;

constexpr int32_t kGateSms = 132;
constexpr int64_t kGatedCols = 512;
constexpr int64_t kGatedTokens[] = {1, 2, 5, 12, 40, 150};
constexpr int64_t kMostGated = 150;

class CudaGateActivation : public testing::TestWithParam<std::tuple<test::NamedActivation, DType>> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }

  void expect_the_reference(int64_t rows, bool has_gate_bias, bool has_up_bias) {
    const auto [kind, type] = GetParam();
    const DType x_type = type == DType::f32 ? DType::f32 : DType::bf16;
    const DeviceWeight one(type, rows, kGatedCols, 5), other(type, rows, kGatedCols, 6);
    const bool is_first = one.weight().data < other.weight().data;
    const DeviceWeight &gate = is_first ? one : other,
                       &up = is_first ? other : one;  // in an order that may be streamed
    const double limit = type == DType::f32 ? 1e-10 : is_quantised(type) ? 5e-4 : 5e-5;
    const std::vector<float> x = random_activations(x_type, kMostGated * kGatedCols, 7);
    GateUpBiases biases = test::gate_up_biases(1, rows);
    if (!has_gate_bias) biases.gate.clear();
    if (!has_up_bias) biases.up.clear();
    const Matrix expected = reference::gate_up_swiglu(reference::to_matrix(x, kMostGated, kGatedCols),
                                                      gate.values(), up.values(), kind.activation, biases);
    const DeviceTensor gate_bias(DType::f32, 1, rows, biases.gate), up_bias(DType::f32, 1, rows, biases.up);
    const auto weight_of = [&](const DeviceTensor& bias) {
      return Weight{.data = bias.tensor().data, .dtype = DType::f32, .rows = 1, .cols = rows};
    };
    LinearOps ops(kGateSms, {.max_tokens = kMostGated, .hidden_size = kGatedCols, .ffn_size = 512});
    for (const int64_t tokens : kGatedTokens) {
      const DeviceTensor in(x_type, tokens, kGatedCols,
                            std::span(x).first(static_cast<size_t>(tokens * kGatedCols)));
      const DeviceTensor out(x_type, tokens, rows);
      Launch launch(nullptr, kGateSms);
      ops.gate_up_swiglu(launch, {.x = in.tensor(),
                                  .gate = gate.weight(),
                                  .up = up.weight(),
                                  .out = out.tensor(),
                                  .activation = kind.activation,
                                  .gate_bias = has_gate_bias ? weight_of(gate_bias) : Weight{},
                                  .up_bias = has_up_bias ? weight_of(up_bias) : Weight{}});
      EXPECT_LT(test::nmse(out.values(), first_rows(expected, tokens)), limit)
          << rows << " rows, " << tokens << " tokens, biases " << has_gate_bias << has_up_bias;
    }
  }
};

TEST_P(CudaGateActivation, MatchesTheReference) {
  expect_the_reference(320, false, false);
  expect_the_reference(320, true, true);
}

TEST_P(CudaGateActivation, MatchesTheReferenceInOddShapes) {
  expect_the_reference(23, true, true);
  expect_the_reference(76, true, false);
  expect_the_reference(76, false, true);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaGateActivation,
                         testing::Combine(testing::ValuesIn(test::kGateActivations),
                                          testing::Values(DType::f32, DType::f16, DType::bf16, DType::q8_0,
                                                          DType::q4_k, DType::q6_k, DType::q2_k)),
                         [](const auto& test_case) {
                           return std::string(std::get<0>(test_case.param).name) + "_" +
                                  std::string(name(std::get<1>(test_case.param)));
                         });

TEST(CudaGateUpBias, OfAnotherShapeIsRefused) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  LinearOps ops(kGateSms, {.max_tokens = 4, .hidden_size = 64, .ffn_size = 64});
  const DeviceWeight weight(DType::bf16, 32, 64, 1);
  const DeviceTensor x(DType::bf16, 1, 64), out(DType::bf16, 1, 32), bias(DType::f32, 1, 24);
  Launch launch(nullptr, kGateSms);
  EXPECT_THROW(
      ops.gate_up_swiglu(
          launch, {.x = x.tensor(),
                   .gate = weight.weight(),
                   .up = weight.weight(),
                   .out = out.tensor(),
                   .gate_bias = {.data = bias.tensor().data, .dtype = DType::f32, .rows = 1, .cols = 24}}),
      Error);
}

}  // namespace
}  // namespace minfer::cuda
