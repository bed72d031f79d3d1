#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/product/strip/strip_division.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"
#include "tests/support/cuda/product_calls.h"
#include "tests/support/models/fixtures.h"

/// Quantised weights with 2 to 8 tokens, by every way of dividing K and rows: over warps, sets of warps, blocks of a cluster.
namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::first_rows;
using test::path_of;
using test::random_activations;

constexpr int32_t kStripSms = 132, kStripWarps = 16;  ///< of an H200; of a block
constexpr int64_t kMostStripTokens = 8;
constexpr int64_t kStripTokenCounts[] = {2, 3, 7, 8};

TEST(TileStripDivision, AWarpHasAChunkWhereClustersReachFarEnough) {
  for (int64_t chunks = 1; chunks <= 200; ++chunks) {
    for (const bool has_clusters : {false, true}) {
      const TileStripDivision d = tile_strip_division(256, chunks, kStripWarps, kStripSms, has_clusters);
      EXPECT_GE(d.splits * d.chunks, chunks);
      EXPECT_LT((d.splits - 1) * d.chunks, chunks) << "no block without a chunk";
      EXPECT_LE(d.splits, has_clusters ? 8 : 1);
      EXPECT_GE(d.sets, 1);
      EXPECT_LE(d.warps * d.sets, kStripWarps);
      EXPECT_LE(d.splits * d.clusters, kStripSms);
      if (has_clusters && chunks <= 8 * kStripWarps) {
        EXPECT_GE(d.warps, d.chunks);
      }
      if (d.splits > 1) {
        EXPECT_EQ(d.sets, 1);
      }
    }
  }
  EXPECT_EQ(tile_strip_division(3, 4, kStripWarps, kStripSms, true).sets, 4);
  EXPECT_EQ(tile_strip_division(3, 4, kStripWarps, kStripSms, true).clusters, 3);
  EXPECT_EQ(tile_strip_division(256, 56, kStripWarps, kStripSms, true).splits, 4);
  EXPECT_EQ(tile_strip_division(256, 56, kStripWarps, kStripSms, true).clusters, 30);
}

struct StripShape {
  const char* name;
  int64_t rows, cols;
  int64_t tail = 0;  ///< additional columns, for types with blocks of 32
  int32_t sms = kStripSms;
};
constexpr StripShape kStripShapes[] = {
    {"TheLeast", 5, 256},
    {"SetsOfFive", 2200, 1280, 64},
    {"SetsOfOne", 17000, 256},
    {"AllWarps", 500, 3840, 0, 8},
    {"ClustersOfTwo", 100, 4352},
    {"ClustersWithMuchToKeep", 1100, 4352, 0, 4},
    {"ClustersOfFour", 600, 14336},
    {"ClustersOfSeven", 40, 28672},
    {"ManyChunksAWarp", 33, 35072, 32},
};
constexpr DType kStripTypes[] = {DType::q4_0, DType::q8_0,  DType::q4_k, DType::q5_k,
                                 DType::q6_k, DType::mxfp4, DType::fp8};

std::string strip_name_of(const testing::TestParamInfo<std::tuple<DType, StripShape>>& of) {
  return fmt::format("{}_{}", name(std::get<0>(of.param)), std::get<1>(of.param).name);
}

class CudaTileStrip : public testing::TestWithParam<std::tuple<DType, StripShape>> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no GPU";
    ops_.emplace(shape_.sms,
                 StepLimits{.max_tokens = kMostStripTokens, .hidden_size = cols_, .ffn_size = 512});
  }
  const DType type_ = std::get<0>(GetParam());
  const StripShape& shape_ = std::get<1>(GetParam());
  const int64_t rows_ = shape_.rows;
  const int64_t cols_ = shape_.cols + (traits(type_).block_elements == 32 ? shape_.tail : 0);
  std::optional<LinearOps> ops_;
};

TEST_P(CudaTileStrip, MatchesTheReferenceAndRepeatsItself) {
  const DeviceWeight weight(type_, rows_, cols_, 1);
  const std::vector<float> x = random_activations(DType::bf16, kMostStripTokens * cols_, 2);
  const Matrix expected =
      reference::linear(reference::to_matrix(x, kMostStripTokens, cols_), weight.values());
  const std::vector<float> bias = test::normal_values(rows_, 3);
  const DeviceTensor device_bias(DType::f32, 1, rows_, bias);
  const Weight bias_weight{device_bias.tensor().data, DType::f32, 1, 1, rows_};
  for (const int64_t tokens : kStripTokenCounts) {
    const auto size = static_cast<size_t>(tokens * rows_);
    const DeviceTensor in(DType::bf16, tokens, cols_,
                          std::span(x).first(static_cast<size_t>(tokens * cols_)));
    const std::vector<float> residual = test::normal_values(tokens * rows_, 4);
    std::vector<float> values;
    for (int run = 0; run < 2; ++run) {
      const DeviceTensor out(DType::f32, tokens, rows_);
      LaunchLog log({}, true);
      log.begin_op(0);
      Launch launch(nullptr, shape_.sms, {}, &log);
      const Weight w = weight.weight();
      ops_->linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
      EXPECT_EQ(path_of(log), "strip_product");
      if (run == 0) values = out.values();
      EXPECT_EQ(out.values(), values) << tokens << " tokens";
    }
    EXPECT_LT(test::nmse(values, first_rows(expected, tokens)), 1e-9) << tokens << " tokens";

    const DeviceTensor sum(DType::f32, tokens, rows_, residual);
    Launch launch(nullptr, shape_.sms);
    const Weight w = weight.weight();
    ops_->linear(launch, {in.tensor(), {&w, 1}, {&bias_weight, 1}, sum.tensor(), true});
    std::vector<double> wanted(expected.data.begin(), expected.data.begin() + static_cast<int64_t>(size));
    for (size_t i = 0; i < size; ++i)
      wanted[i] += residual[i] + bias[i % static_cast<size_t>(rows_)];
    EXPECT_LT(test::nmse(sum.values(), wanted), 1e-9) << tokens << " tokens, with bias and residual";
  }
}

TEST_P(CudaTileStrip, MultipliesGateAndUp) {
  const DeviceWeight gate(type_, rows_, cols_, 5), up(type_, rows_, cols_, 6);
  const std::vector<float> x = random_activations(DType::bf16, kMostStripTokens * cols_, 7);
  const Matrix expected =
      reference::gate_up_swiglu(reference::to_matrix(x, kMostStripTokens, cols_), gate.values(), up.values());
  for (const int64_t tokens : kStripTokenCounts) {
    const DeviceTensor in(DType::bf16, tokens, cols_,
                          std::span(x).first(static_cast<size_t>(tokens * cols_)));
    const DeviceTensor out(DType::bf16, tokens, rows_);
    LaunchLog log({}, true);
    log.begin_op(0);
    Launch launch(nullptr, shape_.sms, {}, &log);
    ops_->gate_up_swiglu(launch,
                         {.x = in.tensor(), .gate = gate.weight(), .up = up.weight(), .out = out.tensor()});
    EXPECT_EQ(path_of(log), "strip_gate_up");
    EXPECT_LT(test::nmse(out.values(), first_rows(expected, tokens)), 8e-6) << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaTileStrip,
                         testing::Combine(testing::ValuesIn(kStripTypes), testing::ValuesIn(kStripShapes)),
                         strip_name_of);

}  // namespace
}  // namespace minfer::cuda
