#include <optional>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/product/fp8/fp8_gemm.h"
#include "kernels/cuda/product/linear.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"
#include "tests/support/cuda/fp8_tensor.h"
#include "tests/support/cuda/product_calls.h"
#include "tests/support/models/fixtures.h"

/// FP8 weights times FP8 activations, by every path of a product through its kernels, and the ops that write such activations.
namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::first_rows;
using test::Fp8Tensor;
using test::GateAndUp;
using test::path_of;

constexpr int32_t kFp8Sms = 132;
constexpr int64_t kFp8Tokens[] = {1, 5, 8, 16, 17, 33, 64, 100, 128, 129, 300, 700};
constexpr int64_t kMostFp8Tokens = 700;
/// For the tensor cores' sums, whose addends lose bits.
constexpr double kFp8SumNmse = 2e-7;
constexpr double kBf16OutNmse = 8e-6;
/// For numbers with three bits of mantissa.
constexpr double kCodeNmse = 1e-3;

struct Fp8Shape {
  const char* name;
  int64_t rows, cols;
};
constexpr Fp8Shape kFp8Shapes[] = {
    {"TheLeast", 36, 128},           {"TailsOfBoth", 76, 1408},     {"ClustersOfFour", 1304, 2048},
    {"ClustersOfTwo", 4096, 1024},   {"OneClusterOfTwo", 256, 384}, {"BlocksThatShareTiles", 9000, 512},
    {"ManyTilesABlock", 20008, 256},
};

/// Needs no GPU.
TEST(Fp8GemmPlan, HasAClusterForEveryRoundAndNoMoreThanFit) {
  for (int64_t rows = 256; rows <= 28672; rows += 1280) {
    for (int64_t tokens = 129; tokens <= 2048; tokens += 101) {
      for (const bool gate_up : {false, true}) {
        const Fp8GemmPlan plan = fp8_gemm_plan(rows, tokens, gate_up, kFp8Sms);
        const int64_t token_tile = 64 * plan.warpgroups;
        const int64_t units = (gate_up ? 2 : 1) * rows / 256 * ((tokens + token_tile - 1) / token_tile);
        EXPECT_LE(plan.clusters, kFp8Sms / 2);
        EXPECT_LE(plan.clusters, units);
        EXPECT_EQ((units + plan.clusters - 1) / plan.clusters, (units + kFp8Sms / 2 - 1) / (kFp8Sms / 2));
      }
    }
  }
}

class CudaFp8Stream : public testing::TestWithParam<Fp8Shape> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
    ops_.emplace(kFp8Sms, StepLimits{.max_tokens = kMostFp8Tokens, .hidden_size = 2048, .ffn_size = 512});
  }
  const int64_t rows_ = GetParam().rows, cols_ = GetParam().cols;
  std::optional<LinearOps> ops_;
};

TEST_P(CudaFp8Stream, MatchesTheReferenceAndRepeatsItself) {
  const DeviceWeight weight(DType::fp8, rows_, cols_, 1);
  const std::vector<float> x = test::normal_values(kMostFp8Tokens * cols_, 2);
  const std::vector<float> taken = Fp8Tensor(kMostFp8Tokens, cols_, x).values();
  const Matrix expected =
      reference::linear(reference::to_matrix(taken, kMostFp8Tokens, cols_), weight.values());
  for (const int64_t tokens : kFp8Tokens) {
    const Fp8Tensor in(tokens, cols_, std::span(x).first(static_cast<size_t>(tokens * cols_)));
    for (const DType type : {DType::f32, DType::bf16}) {
      std::vector<float> values;
      for (int run = 0; run < 3; ++run) {
        const DeviceTensor out(type, tokens, rows_);
        LaunchLog log({}, true);
        log.begin_op(0);
        Launch launch(nullptr, kFp8Sms, {}, &log);
        const Weight w = weight.weight();
        ops_->linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
        EXPECT_EQ(path_of(log), tokens > 128 && rows_ % 256 == 0 ? "fp8_gemm" : "fp8_stream_product");
        if (run == 0) values = out.values();
        EXPECT_EQ(out.values(), values) << tokens << " tokens";
      }
      EXPECT_LT(test::nmse(values, first_rows(expected, tokens)),
                kFp8SumNmse + (type == DType::bf16 ? kBf16OutNmse : 0.0))
          << tokens << " tokens, out " << name(type);
    }
  }
}

TEST_P(CudaFp8Stream, AddsBiasAndResidual) {
  const DeviceWeight weight(DType::fp8, rows_, cols_, 1);
  const std::vector<float> bias = test::normal_values(rows_, 3);
  const DeviceTensor device_bias(DType::f32, 1, rows_, bias);
  const Weight bias_weight{device_bias.tensor().data, DType::f32, 1, 1, rows_};
  for (const int64_t tokens : {5, 40, 128, 300, 700}) {
    const Fp8Tensor in(tokens, cols_, test::normal_values(tokens * cols_, 2));
    const std::vector<float> residual = test::normal_values(tokens * rows_, 4);
    const DeviceTensor out(DType::f32, tokens, rows_, residual);
    Launch launch(nullptr, kFp8Sms);
    const Weight w = weight.weight();
    ops_->linear(launch, {in.tensor(), {&w, 1}, {&bias_weight, 1}, out.tensor(), true});
    Matrix expected = reference::linear(reference::to_matrix(in.values(), tokens, cols_), weight.values());
    for (size_t i = 0; i < expected.data.size(); ++i)
      expected.data[i] += residual[i] + bias[i % static_cast<size_t>(rows_)];
    EXPECT_LT(test::nmse(out.values(), expected.data), kFp8SumNmse) << tokens << " tokens";
  }
}

TEST_P(CudaFp8Stream, MultipliesGateAndUp) {
  const int64_t rows = (rows_ + 127) / 128 * 128;
  const GateAndUp weights(DType::fp8, rows, cols_, 5);
  const std::vector<float> x = test::normal_values(kMostFp8Tokens * cols_, 7);
  const std::vector<float> taken = Fp8Tensor(kMostFp8Tokens, cols_, x).values();
  const Matrix expected = reference::gate_up_swiglu(reference::to_matrix(taken, kMostFp8Tokens, cols_),
                                                    weights.gate_values(), weights.up_values());
  for (const int64_t tokens : kFp8Tokens) {
    const Fp8Tensor in(tokens, cols_, std::span(x).first(static_cast<size_t>(tokens * cols_)));
    const Fp8Tensor out(tokens, rows);
    LaunchLog log({}, true);
    log.begin_op(0);
    Launch launch(nullptr, kFp8Sms, {}, &log);
    ops_->gate_up_swiglu(launch,
                         {.x = in.tensor(), .gate = weights.gate(), .up = weights.up(), .out = out.tensor()});
    EXPECT_EQ(path_of(log), tokens > 128 ? "fp8_gemm_gate_up" : "fp8_stream_gate_up");
    const std::vector<float> values = out.values();
    EXPECT_LT(test::nmse(values, first_rows(expected, tokens)), kCodeNmse) << tokens << " tokens";
    const Fp8Tensor again(tokens, rows);
    Launch second(nullptr, kFp8Sms);
    ops_->gate_up_swiglu(
        second, {.x = in.tensor(), .gate = weights.gate(), .up = weights.up(), .out = again.tensor()});
    EXPECT_EQ(again.values(), values) << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaFp8Stream, testing::ValuesIn(kFp8Shapes),
                         [](const auto& of) { return of.param.name; });

/// In each 128 columns, the largest number has a code of 448 or little less, and no number is off by more than half of its last bit.
void expect_codes_of(const Fp8Tensor& out, const Matrix& expected) {
  const std::vector<float> values = out.values(), scales = out.scales();
  for (int64_t i = 0; i < std::ssize(values); ++i) {
    const double value = expected.data[static_cast<size_t>(i)];
    const float scale = scales[static_cast<size_t>(i / kFp8Columns)];
    const double error = std::abs(values[static_cast<size_t>(i)] - value);
    ASSERT_LE(error, std::max(std::abs(value) / 15.9, scale * 0x1p-9)) << "element " << i << ", " << value;
    ASSERT_LE(std::abs(value), 448.1 * scale) << "element " << i;
  }
  for (size_t group = 0; group < scales.size(); ++group) {
    double largest = 0.0;
    for (int i = 0; i < kFp8Columns; ++i)
      largest = std::max(largest, std::abs(expected.data[group * kFp8Columns + static_cast<size_t>(i)]));
    ASSERT_GE(largest, 440.0 * scales[group]) << "group " << group;
  }
}

TEST(CudaFp8Norm, WritesCodesAndScales) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const int64_t cols : {128, 384, 4096, 8192, 8320, 14336}) {
    for (const int64_t rows : {1, 3, 70, 515}) {
      const std::vector<float> x = test::normal_values(rows * cols, 1, 3.0f);
      const std::vector<float> weight = test::normal_values(cols, 2);
      const test::CudaTensor input(DType::f32, rows, cols, x);
      const test::CudaArray<float> scale(weight);
      const Fp8Tensor out(rows, cols);
      const test::CudaRun run;
      Launch launch = run.launch();
      rms_norm(launch, input.tensor(), {.data = scale.data(), .rows = 1, .cols = cols}, 1e-5f, out.tensor());
      expect_codes_of(out, reference::rms_norm(reference::to_matrix(x, rows, cols), weight, 1e-5));
    }
  }
}

TEST(CudaFp8Norm, ZerosAndNanStayWhatTheyAre) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  std::vector<float> x(3 * 256, 0.0f);
  x[256 + 7] = NAN;
  const std::vector<float> weight(256, 1.0f);
  const test::CudaTensor input(DType::f32, 3, 256, x);
  const test::CudaArray<float> scale(weight);
  const Fp8Tensor out(3, 256);
  const test::CudaRun run;
  Launch launch = run.launch();
  rms_norm(launch, input.tensor(), {.data = scale.data(), .rows = 1, .cols = 256}, 1e-5f, out.tensor());
  const std::vector<float> values = out.values();
  EXPECT_EQ(std::count(values.begin(), values.begin() + 256, 0.0f), 256);
  EXPECT_TRUE(std::all_of(values.begin() + 256, values.begin() + 512, [](float v) { return std::isnan(v); }));
  EXPECT_EQ(std::count(values.begin() + 512, values.end(), 0.0f), 256);
}

}  // namespace
}  // namespace minfer::cuda
