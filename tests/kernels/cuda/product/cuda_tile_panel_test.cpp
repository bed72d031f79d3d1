#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/product/panel/panel_division.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"
#include "tests/support/cuda/product_calls.h"
#include "tests/support/models/fixtures.h"

/// Quantised weights with 2 to 8 tokens, by the ways in which K and rows are divided: over warps, sets of them, blocks of a cluster.
namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::first_rows;
using test::path_of;
using test::random_activations;

constexpr int32_t kPanelSms = 132, kPanelWarps = 16;  ///< of an H200; of a block
constexpr int64_t kMostPanelTokens = 8;
constexpr int64_t kPanelTokenCounts[] = {2, 3, 7, 8};

TEST(TilePanelDivision, AWarpHasAChunkWhereClustersReachFarEnough) {
  for (int64_t chunks = 1; chunks <= 200; ++chunks) {
    for (const bool has_clusters : {false, true}) {
      const TilePanelDivision d = tile_panel_division(256, chunks, kPanelWarps, kPanelSms, has_clusters);
      EXPECT_GE(d.splits * d.chunks, chunks);
      EXPECT_LT((d.splits - 1) * d.chunks, chunks) << "no block without a chunk";
      EXPECT_LE(d.splits, has_clusters ? 8 : 1);
      EXPECT_GE(d.sets, 1);
      EXPECT_LE(d.warps * d.sets, kPanelWarps);
      EXPECT_LE(d.splits * d.clusters, kPanelSms);
      if (has_clusters && chunks <= 8 * kPanelWarps) {
        EXPECT_GE(d.warps, d.chunks);
      }
      if (d.splits > 1) {
        EXPECT_EQ(d.sets, 1);
      }
    }
  }
  EXPECT_EQ(tile_panel_division(3, 4, kPanelWarps, kPanelSms, true).sets, 4);
  EXPECT_EQ(tile_panel_division(3, 4, kPanelWarps, kPanelSms, true).clusters, 3);
  EXPECT_EQ(tile_panel_division(256, 56, kPanelWarps, kPanelSms, true).splits, 4);
  EXPECT_EQ(tile_panel_division(256, 56, kPanelWarps, kPanelSms, true).clusters, 30);
}

struct PanelShape {
  const char* name;
  int64_t rows, cols;
  int64_t tail = 0;  ///< columns more, of types with blocks of 32
  int32_t sms = kPanelSms;
};
constexpr PanelShape kPanelShapes[] = {
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
constexpr DType kPanelTypes[] = {DType::q4_0, DType::q8_0,  DType::q4_k, DType::q5_k,
                                 DType::q6_k, DType::mxfp4, DType::fp8};

std::string panel_name_of(const testing::TestParamInfo<std::tuple<DType, PanelShape>>& of) {
  return fmt::format("{}_{}", name(std::get<0>(of.param)), std::get<1>(of.param).name);
}

class CudaTilePanel : public testing::TestWithParam<std::tuple<DType, PanelShape>> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no GPU";
    ops_.emplace(shape_.sms,
                 StepLimits{.max_tokens = kMostPanelTokens, .hidden_size = cols_, .ffn_size = 512});
  }
  const DType type_ = std::get<0>(GetParam());
  const PanelShape& shape_ = std::get<1>(GetParam());
  const int64_t rows_ = shape_.rows;
  const int64_t cols_ = shape_.cols + (traits(type_).block_elements == 32 ? shape_.tail : 0);
  std::optional<LinearOps> ops_;
};

TEST_P(CudaTilePanel, MatchesTheReferenceAndRepeatsItself) {
  const DeviceWeight weight(type_, rows_, cols_, 1);
  const std::vector<float> x = random_activations(DType::bf16, kMostPanelTokens * cols_, 2);
  const Matrix expected =
      reference::linear(reference::to_matrix(x, kMostPanelTokens, cols_), weight.values());
  const std::vector<float> bias = test::normal_values(rows_, 3);
  const DeviceTensor device_bias(DType::f32, 1, rows_, bias);
  const Weight bias_weight{device_bias.tensor().data, DType::f32, 1, 1, rows_};
  for (const int64_t tokens : kPanelTokenCounts) {
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
      EXPECT_EQ(path_of(log), "panel_product");
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

TEST_P(CudaTilePanel, MultipliesGateAndUp) {
  const DeviceWeight gate(type_, rows_, cols_, 5), up(type_, rows_, cols_, 6);
  const std::vector<float> x = random_activations(DType::bf16, kMostPanelTokens * cols_, 7);
  const Matrix expected =
      reference::gate_up_swiglu(reference::to_matrix(x, kMostPanelTokens, cols_), gate.values(), up.values());
  for (const int64_t tokens : kPanelTokenCounts) {
    const DeviceTensor in(DType::bf16, tokens, cols_,
                          std::span(x).first(static_cast<size_t>(tokens * cols_)));
    const DeviceTensor out(DType::bf16, tokens, rows_);
    LaunchLog log({}, true);
    log.begin_op(0);
    Launch launch(nullptr, shape_.sms, {}, &log);
    ops_->gate_up_swiglu(launch,
                         {.x = in.tensor(), .gate = gate.weight(), .up = up.weight(), .out = out.tensor()});
    EXPECT_EQ(path_of(log), "panel_gate_up");
    EXPECT_LT(test::nmse(out.values(), first_rows(expected, tokens)), 8e-6) << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaTilePanel,
                         testing::Combine(testing::ValuesIn(kPanelTypes), testing::ValuesIn(kPanelShapes)),
                         panel_name_of);

}  // namespace
}  // namespace minfer::cuda
