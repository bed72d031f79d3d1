#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/product/stream_product.h"
#include "kernels/cuda/product/tile_stream/tile_stream_kernels.h"
#include "kernels/cuda/weights/weight_types.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"
#include "tests/support/cuda/product_calls.h"
#include "tests/support/models/fixtures.h"

/// Quantised weights times 9 or more tokens (rare types: 2 or more), by every path of a product through its kernels: one block for each
/// tile, clusters, blocks that end within a tile, and whole tiles in turn.
namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::first_rows;
using test::GateAndUp;
using test::path_of;
using test::random_activations;

constexpr int32_t kSmsOfH200 = 132;
constexpr int64_t kMostStreamed = 128;
constexpr int64_t kStreamedTokens[] = {2, 3, 4, 8, 9, 16, 17, 33, 65, 128};
/// Scales, minima, weights and outputs are rounded to bf16.
constexpr double kWeightNmse = 2e-5;
constexpr double kOutputNmse = 8e-6;

struct TileShape {
  const char* name;
  int64_t rows, cols;
  int64_t tail = 0;  ///< additional columns, for types with blocks of 32
};
constexpr TileShape kTileShapes[] = {
    {"TheLeast", 36, 256},         {"TailsOfBoth", 76, 1280, 64},        {"ClustersOfFour", 1304, 2048},
    {"ClustersOfTwo", 4096, 1024}, {"BlocksThatShareTiles", 17048, 512}, {"ManyTilesABlock", 40008, 256},
};
constexpr TileShape kRareShapes[] = {kTileShapes[1], kTileShapes[2], kTileShapes[4]};
constexpr DType kTypes[] = {DType::q4_0, DType::q8_0,  DType::q4_k, DType::q5_k,
                            DType::q6_k, DType::mxfp4, DType::fp8};
constexpr DType kRareTypes[] = {DType::q2_k,   DType::q3_k,   DType::q4_1,   DType::q5_0,    DType::q5_1,
                                DType::iq4_nl, DType::iq4_xs, DType::iq2_xs, DType::iq3_xxs, DType::tq2_0};

std::string name_of(const testing::TestParamInfo<std::tuple<DType, TileShape>>& of) {
  return fmt::format("{}_{}", name(std::get<0>(of.param)), std::get<1>(of.param).name);
}

class CudaTileStream : public testing::TestWithParam<std::tuple<DType, TileShape>> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
    ops_.emplace(kSmsOfH200, StepLimits{.max_tokens = kMostStreamed, .hidden_size = 2048, .ffn_size = 512});
  }
  const DType type_ = std::get<0>(GetParam());
  const TileShape& shape_ = std::get<1>(GetParam());
  const int64_t rows_ = shape_.rows;
  const int64_t cols_ = shape_.cols + (traits(type_).block_elements == 32 ? shape_.tail : 0);
  std::optional<LinearOps> ops_;
};

TEST_P(CudaTileStream, MatchesTheReferenceAndRepeatsItself) {
  const DeviceWeight weight(type_, rows_, cols_, 1);
  const std::vector<float> x = random_activations(DType::bf16, kMostStreamed * cols_, 2);
  const Matrix expected = reference::linear(reference::to_matrix(x, kMostStreamed, cols_), weight.values());
  for (const int64_t tokens : kStreamedTokens) {
    const DeviceTensor in(DType::bf16, tokens, cols_,
                          std::span(x).first(static_cast<size_t>(tokens * cols_)));
    for (const DType type : {DType::f32, DType::bf16}) {
      std::vector<float> values;
      for (int run = 0; run < 3; ++run) {
        const DeviceTensor out(type, tokens, rows_);
        LaunchLog log({}, true);
        log.begin_op(0);
        Launch launch(nullptr, kSmsOfH200, {}, &log);
        const Weight w = weight.weight();
        ops_->linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
        if (tokens > (is_rare(type_) ? 1 : kStripTokens)) {
          EXPECT_EQ(path_of(log), "tile_stream_product");
        }
        if (run == 0) values = out.values();
        EXPECT_EQ(out.values(), values) << tokens << " tokens";
      }
      EXPECT_LT(test::nmse(values, first_rows(expected, tokens)),
                kWeightNmse + (type == DType::bf16 ? kOutputNmse : 0.0))
          << tokens << " tokens, out " << name(type);
    }
  }
}

TEST_P(CudaTileStream, AddsBiasAndResidual) {
  const DeviceWeight weight(type_, rows_, cols_, 1);
  const std::vector<float> bias = test::normal_values(rows_, 3);
  const DeviceTensor device_bias(DType::f32, 1, rows_, bias);
  const Weight bias_weight{device_bias.tensor().data, DType::f32, 1, 1, rows_};
  for (const int64_t tokens : {5, 40, 128}) {
    const std::vector<float> x = random_activations(DType::bf16, tokens * cols_, 2);
    const std::vector<float> residual = test::normal_values(tokens * rows_, 4);
    const DeviceTensor in(DType::bf16, tokens, cols_, x);
    const DeviceTensor out(DType::f32, tokens, rows_, residual);
    Launch launch(nullptr, kSmsOfH200);
    const Weight w = weight.weight();
    ops_->linear(launch, {in.tensor(), {&w, 1}, {&bias_weight, 1}, out.tensor(), true});
    Matrix expected = reference::linear(reference::to_matrix(x, tokens, cols_), weight.values());
    for (size_t i = 0; i < expected.data.size(); ++i)
      expected.data[i] += residual[i] + bias[i % static_cast<size_t>(rows_)];
    EXPECT_LT(test::nmse(out.values(), expected.data), kWeightNmse) << tokens << " tokens";
  }
}

TEST_P(CudaTileStream, MultipliesGateAndUp) {
  const int64_t rows = (rows_ + 31) / 32 * 32;
  const GateAndUp weights(type_, rows, cols_, 5);
  const std::vector<float> x = random_activations(DType::bf16, kMostStreamed * cols_, 7);
  const Matrix expected = reference::gate_up_swiglu(reference::to_matrix(x, kMostStreamed, cols_),
                                                    weights.gate_values(), weights.up_values());
  for (const int64_t tokens : kStreamedTokens) {
    const DeviceTensor in(DType::bf16, tokens, cols_,
                          std::span(x).first(static_cast<size_t>(tokens * cols_)));
    const DeviceTensor out(DType::bf16, tokens, rows);
    LaunchLog log({}, true);
    log.begin_op(0);
    Launch launch(nullptr, kSmsOfH200, {}, &log);
    ops_->gate_up_swiglu(launch,
                         {.x = in.tensor(), .gate = weights.gate(), .up = weights.up(), .out = out.tensor()});
    EXPECT_EQ(path_of(log),
              tokens > (is_rare(type_) ? 1 : kStripTokens) ? "tile_stream_gate_up" : "strip_gate_up");
    EXPECT_LT(test::nmse(out.values(), first_rows(expected, tokens)), 5e-5) << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaTileStream,
                         testing::Combine(testing::ValuesIn(kTypes), testing::ValuesIn(kTileShapes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(RareTypes, CudaTileStream,
                         testing::Combine(testing::ValuesIn(kRareTypes), testing::ValuesIn(kRareShapes)),
                         name_of);

class CudaTileStreamOfType : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
  }
};

/// Two groups of rows for each block, whose weights share the same few stages in turn: none is overwritten before it is read.
TEST_P(CudaTileStreamOfType, KeepsWeightsUntilTheyAreRead) {
  constexpr int32_t kFewSms = 8;
  constexpr int64_t kRows = 1072, kDeepest = 2048;
  LinearOps ops(kFewSms, {.max_tokens = kMostStreamed, .hidden_size = kDeepest, .ffn_size = kRows});
  for (const int64_t cols : {768, 1280, 2048}) {
    const DeviceWeight weight(GetParam(), kRows, cols, 1);
    const std::vector<float> x = random_activations(DType::bf16, kMostStreamed * cols, 2);
    const Matrix expected = reference::linear(reference::to_matrix(x, kMostStreamed, cols), weight.values());
    for (const int64_t tokens : {24, 48, 128}) {
      ASSERT_EQ(tile_stream_plan(kRows, cols, tokens, false, kFewSms).warpgroups, 2);
      const DeviceTensor in(DType::bf16, tokens, cols,
                            std::span(x).first(static_cast<size_t>(tokens * cols)));
      std::vector<float> values;
      for (int run = 0; run < 3; ++run) {
        const DeviceTensor out(DType::f32, tokens, kRows);
        LaunchLog log({}, true);
        log.begin_op(0);
        Launch launch(nullptr, kFewSms, {}, &log);
        const Weight w = weight.weight();
        ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
        EXPECT_EQ(path_of(log), "tile_stream_product");
        if (run == 0) values = out.values();
        EXPECT_TRUE(out.values() == values) << cols << " columns, " << tokens << " tokens, run " << run;
      }
      EXPECT_LT(test::nmse(values, first_rows(expected, tokens)), kWeightNmse)
          << cols << " columns, " << tokens << " tokens";
    }
  }
}

/// Tiles of 192 and 256 tokens: one tile for all, whose columns are divided evenly, and whole tiles in turn.
TEST_P(CudaTileStreamOfType, MultipliesLargeTiles) {
  constexpr int32_t kFewSms = 7;
  constexpr int64_t kRows = 1440, kCols = 512, kMostTokens = 600;
  const ProductWorkspace workspace(kFewSms);
  const GateAndUp weights(GetParam(), kRows, kCols, 5);
  const std::vector<float> x = random_activations(DType::bf16, kMostTokens * kCols, 7);
  const Matrix x_values = reference::to_matrix(x, kMostTokens, kCols);
  const Matrix product = reference::linear(x_values, weights.gate_values());
  const Matrix expected = reference::gate_up_swiglu(x_values, weights.gate_values(), weights.up_values());
  const std::vector<float> bias = test::normal_values(kRows, 3);
  const DeviceTensor device_bias(DType::f32, 1, kRows, bias);
  struct Case {
    int32_t tile, tokens;
  };
  for (const auto [tile, tokens] : std::initializer_list<Case>{
           {192, 129}, {192, 192}, {192, 193}, {192, 600}, {256, 1}, {256, 250}, {256, 256}, {256, 600}}) {
    const DeviceTensor in(DType::bf16, tokens, kCols,
                          std::span(x).first(static_cast<size_t>(tokens) * kCols));
    const std::vector<float> residual = test::normal_values(tokens * kRows, 4);
    const DeviceTensor sum(DType::f32, tokens, kRows, residual), out(DType::bf16, tokens, kRows),
        hidden(DType::bf16, tokens, kRows);
    const auto args_to = [&](const Tensor& to) {
      return ProductArgs{.weight = weights.gate().data,
                         .x = in.tensor().data,
                         .out = to.data,
                         .rows = kRows,
                         .cols = kCols,
                         .tokens = tokens,
                         .x_stride = static_cast<int32_t>(in.tensor().stride),
                         .out_stride = to.stride,
                         .out_is_f32 = to.dtype == DType::f32,
                         .partials = workspace.partials.as<float>(),
                         .arrivals = workspace.arrivals.as<unsigned>()};
    };
    const auto launched = [&](const ProductArgs& args) {
      StreamPlan plan{.token_tile = tile, .warpgroups = 2};
      const int64_t tiles = row_tiles(kRows, args.up != nullptr, plan.warpgroups);
      const int32_t token_blocks = (tokens + tile - 1) / tile;
      token_blocks > 1 ? plan.take_rounds(tiles * token_blocks, kFewSms) : plan.take_tiles(tiles, 1, kFewSms);
      LaunchLog log({}, true);
      log.begin_op(0);
      Launch launch(nullptr, kFewSms, {}, &log);
      for_type(TiledTypes{}, "tile_stream", weights.gate().dtype,
               [&](auto type) { launch_tile_stream<type>(launch, args, plan); });
      return path_of(log);
    };
    ProductArgs adds = args_to(sum.tensor()), gates = args_to(hidden.tensor());
    adds.bias = static_cast<const float*>(device_bias.tensor().data);
    adds.add_to_out = true;
    gates.up = weights.up().data;
    EXPECT_EQ(launched(adds), "tile_stream_product");
    EXPECT_EQ(launched(args_to(out.tensor())), "tile_stream_product");
    EXPECT_EQ(launched(gates), "tile_stream_gate_up");
    const std::span<const double> of_tokens = first_rows(product, tokens);
    std::vector<double> with_both(of_tokens.begin(), of_tokens.end());
    for (size_t i = 0; i < with_both.size(); ++i)
      with_both[i] += residual[i] + bias[i % static_cast<size_t>(kRows)];
    EXPECT_LT(test::nmse(sum.values(), with_both), kWeightNmse) << tokens << " tokens by " << tile;
    EXPECT_LT(test::nmse(out.values(), of_tokens), kWeightNmse + kOutputNmse)
        << tokens << " tokens by " << tile;
    EXPECT_LT(test::nmse(hidden.values(), first_rows(expected, tokens)), 5e-5)
        << tokens << " tokens by " << tile;
  }
}

/// By the rules, whatever tiles they choose; also more tokens than one launch takes.
TEST_P(CudaTileStreamOfType, MultipliesMoreTokensThanATileHas) {
  constexpr int64_t kRows = 736, kCols = 256;
  LinearOps ops(kSmsOfH200, {.max_tokens = 2100, .hidden_size = 2048, .ffn_size = kRows});
  const GateAndUp weights(GetParam(), kRows, kCols, 5);
  for (const int64_t tokens : {129, 300, 500, 2100}) {
    const std::vector<float> x = random_activations(DType::bf16, tokens * kCols, 7);
    const Matrix x_values = reference::to_matrix(x, tokens, kCols);
    const DeviceTensor in(DType::bf16, tokens, kCols, x);
    const DeviceTensor out(DType::f32, tokens, kRows), hidden(DType::bf16, tokens, kRows);
    LaunchLog log({}, true);
    log.begin_op(0);
    Launch launch(nullptr, kSmsOfH200, {}, &log);
    const Weight w = weights.gate();
    ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
    EXPECT_LT(test::nmse(out.values(), reference::linear(x_values, weights.gate_values()).data), kWeightNmse)
        << tokens << " tokens";
    ops.gate_up_swiglu(launch, {.x = in.tensor(), .gate = w, .up = weights.up(), .out = hidden.tensor()});
    for (const KernelLaunch& one : log.table().from(0))
      EXPECT_THAT(one.path, testing::StartsWith("tile_stream_"));
    EXPECT_LT(
        test::nmse(hidden.values(),
                   reference::gate_up_swiglu(x_values, weights.gate_values(), weights.up_values()).data),
        5e-5)
        << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaTileStreamOfType,
                         testing::Values(DType::q4_0, DType::q8_0, DType::q4_k, DType::q5_k, DType::q6_k,
                                         DType::mxfp4, DType::fp8, DType::q2_k, DType::q3_k, DType::iq4_xs,
                                         DType::iq3_s, DType::iq1_m),
                         [](const auto& of) { return std::string(name(of.param)); });

/// Gate and up of different types are not dequantised either.
TEST(CudaTileStreamOf, GateAndUpOfTwoTypes) {
  if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
  constexpr int64_t kRows = 320, kCols = 512, kTokens = 300;
  LinearOps ops(kSmsOfH200, {.max_tokens = kTokens, .hidden_size = kCols, .ffn_size = kRows});
  const DeviceWeight gate(DType::q4_k, kRows, kCols, 5), up(DType::q6_k, kRows, kCols, 6);
  const std::vector<float> x = random_activations(DType::bf16, kTokens * kCols, 7);
  const DeviceTensor in(DType::bf16, kTokens, kCols, x), hidden(DType::bf16, kTokens, kRows);
  LaunchLog log({}, true);
  log.begin_op(0);
  Launch launch(nullptr, kSmsOfH200, {}, &log);
  ops.gate_up_swiglu(launch,
                     {.x = in.tensor(), .gate = gate.weight(), .up = up.weight(), .out = hidden.tensor()});
  for (const KernelLaunch& one : log.table().from(0))
    EXPECT_THAT(one.path, testing::Not(testing::HasSubstr("dequantise")));
  const Matrix expected =
      reference::gate_up_swiglu(reference::to_matrix(x, kTokens, kCols), gate.values(), up.values());
  EXPECT_LT(test::nmse(hidden.values(), expected.data), 5e-5);
}

}  // namespace
}  // namespace minfer::cuda
