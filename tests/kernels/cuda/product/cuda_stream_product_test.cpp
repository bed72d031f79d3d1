#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/product/stream_product.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"
#include "tests/support/cuda/product_calls.h"
#include "tests/support/models/fixtures.h"

/// bf16 weights times 3 to 128 tokens, by every path of a product through its kernels: one block for each tile, clusters, and blocks that
/// end within a tile.
namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::first_rows;
using test::GateAndUp;
using test::path_of;
using test::random_activations;

constexpr int32_t kStreamSms = 132;
constexpr int64_t kMostStreamTokens = 128;
constexpr int64_t kStreamTokenCounts[] = {3, 8, 9, 16, 17, 32, 33, 64, 65, 127, 128};
constexpr double kExactStreamNmse = 1e-10;
constexpr double kRoundedStreamNmse = 8e-6;

struct Shape {
  const char* name;
  int64_t rows, cols;
};
constexpr Shape kShapes[] = {
    {"TheLeast", 8, 8},
    {"TailsOfBoth", 72, 136},
    {"ClustersOfFour", 1304, 1032},
    {"ClustersOfTwo", 4096, 520},
    {"BlocksThatShareTiles", 17048, 200},
    {"ManyTilesABlock", 40008, 72},
};

class CudaStreamProduct : public testing::TestWithParam<Shape> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
    ops_.emplace(kStreamSms,
                 StepLimits{.max_tokens = kMostStreamTokens, .hidden_size = 2048, .ffn_size = 512});
  }
  const Shape shape_ = GetParam();
  std::optional<LinearOps> ops_;
};

TEST_P(CudaStreamProduct, MatchesTheReferenceAndRepeatsItself) {
  const DeviceWeight weight(DType::bf16, shape_.rows, shape_.cols, 1);
  const std::vector<float> x = random_activations(DType::bf16, kMostStreamTokens * shape_.cols, 2);
  const Matrix expected =
      reference::linear(reference::to_matrix(x, kMostStreamTokens, shape_.cols), weight.values());
  for (const int64_t tokens : kStreamTokenCounts) {
    const DeviceTensor in(DType::bf16, tokens, shape_.cols,
                          std::span(x).first(static_cast<size_t>(tokens * shape_.cols)));
    for (const DType type : {DType::f32, DType::bf16}) {
      std::vector<float> values;
      for (int run = 0; run < 3; ++run) {
        const DeviceTensor out(type, tokens, shape_.rows);
        LaunchLog log({}, true);
        log.begin_op(0);
        Launch launch(nullptr, kStreamSms, {}, &log);
        const Weight w = weight.weight();
        ops_->linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
        EXPECT_EQ(path_of(log), "stream_product");
        if (run == 0) values = out.values();
        EXPECT_EQ(out.values(), values) << tokens << " tokens";
      }
      EXPECT_LT(test::nmse(values, first_rows(expected, tokens)),
                kExactStreamNmse + (type == DType::bf16 ? kRoundedStreamNmse : 0.0))
          << tokens << " tokens, out " << name(type);
    }
  }
}

TEST_P(CudaStreamProduct, AddsBiasAndResidual) {
  const DeviceWeight weight(DType::bf16, shape_.rows, shape_.cols, 1);
  const std::vector<float> bias = test::normal_values(shape_.rows, 3);
  const DeviceTensor device_bias(DType::f32, 1, shape_.rows, bias);
  const Weight bias_weight{device_bias.tensor().data, DType::f32, 1, 1, shape_.rows};
  for (const int64_t tokens : {3, 40, 128}) {
    const std::vector<float> x = random_activations(DType::bf16, tokens * shape_.cols, 2);
    const std::vector<float> residual = test::normal_values(tokens * shape_.rows, 4);
    const DeviceTensor in(DType::bf16, tokens, shape_.cols, x);
    const DeviceTensor out(DType::f32, tokens, shape_.rows, residual);
    Launch launch(nullptr, kStreamSms);
    const Weight w = weight.weight();
    ops_->linear(launch, {in.tensor(), {&w, 1}, {&bias_weight, 1}, out.tensor(), true});
    Matrix expected = reference::linear(reference::to_matrix(x, tokens, shape_.cols), weight.values());
    for (size_t i = 0; i < expected.data.size(); ++i)
      expected.data[i] += residual[i] + bias[i % static_cast<size_t>(shape_.rows)];
    EXPECT_LT(test::nmse(out.values(), expected.data), kExactStreamNmse) << tokens << " tokens";
  }
}

TEST_P(CudaStreamProduct, MultipliesGateAndUp) {
  const GateAndUp weights(DType::bf16, shape_.rows, shape_.cols, 5);
  const std::vector<float> x = random_activations(DType::bf16, kMostStreamTokens * shape_.cols, 6);
  const Matrix expected = reference::gate_up_swiglu(reference::to_matrix(x, kMostStreamTokens, shape_.cols),
                                                    weights.gate_values(), weights.up_values());
  for (const int64_t tokens : kStreamTokenCounts) {
    const DeviceTensor in(DType::bf16, tokens, shape_.cols,
                          std::span(x).first(static_cast<size_t>(tokens * shape_.cols)));
    const DeviceTensor out(DType::bf16, tokens, shape_.rows);
    LaunchLog log({}, true);
    log.begin_op(0);
    Launch launch(nullptr, kStreamSms, {}, &log);
    ops_->gate_up_swiglu(launch,
                         {.x = in.tensor(), .gate = weights.gate(), .up = weights.up(), .out = out.tensor()});
    EXPECT_EQ(path_of(log), "stream_gate_up");
    EXPECT_LT(test::nmse(out.values(), first_rows(expected, tokens)), 2e-5) << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaStreamProduct, testing::ValuesIn(kShapes),
                         [](const auto& shape) { return std::string(shape.param.name); });

/// Tokens in tiles of 192 or 256, whole tiles in turn, and more tokens than one launch takes.
TEST(CudaStreamProductOf, ManyTokens) {
  if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
  constexpr int64_t kRows = 8328, kCols = 200, kMost = 2309;  // 66 tiles of rows, the last with 8
  LinearOps ops(kStreamSms, {.max_tokens = kMost, .hidden_size = 2048, .ffn_size = kRows});
  const GateAndUp weights(DType::bf16, kRows, kCols, 5);
  for (const int64_t tokens : {129, 192, 193, 257, 384, 1000, 2309}) {
    const std::vector<float> x = random_activations(DType::bf16, tokens * kCols, 6);
    const Matrix x_values = reference::to_matrix(x, tokens, kCols);
    const DeviceTensor in(DType::bf16, tokens, kCols, x);
    {
      const DeviceTensor out(DType::bf16, tokens, kRows);
      LaunchLog log({}, true);
      log.begin_op(0);
      Launch launch(nullptr, kStreamSms, {}, &log);
      ops.gate_up_swiglu(launch,
                         {.x = in.tensor(), .gate = weights.gate(), .up = weights.up(), .out = out.tensor()});
      EXPECT_EQ(log.table().from(0).front().path, "stream_gate_up");
      const Matrix expected = reference::gate_up_swiglu(x_values, weights.gate_values(), weights.up_values());
      EXPECT_LT(test::nmse(out.values(), expected.data), 2e-5) << tokens << " tokens";
    }
    if (tokens != 257 && tokens != 1000) continue;  // cuBLASLt is faster
    const Matrix expected = reference::linear(x_values, weights.gate_values());
    for (const DType type : {DType::f32, DType::bf16}) {
      const DeviceTensor out(type, tokens, kRows);
      LaunchLog log({}, true);
      log.begin_op(0);
      Launch launch(nullptr, kStreamSms, {}, &log);
      ops.linear(launch, {.x = in.tensor(), .weights = {&weights.gate(), 1}, .out = out.tensor()});
      EXPECT_EQ(log.table().from(0).front().path, "stream_product");
      EXPECT_LT(test::nmse(out.values(), expected.data),
                kExactStreamNmse + (type == DType::bf16 ? kRoundedStreamNmse : 0.0))
          << tokens << " tokens, out " << name(type);
    }
  }
}

}  // namespace
}  // namespace minfer::cuda
