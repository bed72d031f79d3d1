#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/product/linear.h"
#include "kernels/cuda/product/strip/strip_division.h"
#include "kernels/quant_types.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"

namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::random_activations;

constexpr int64_t kMaxTokens = 100;
constexpr int64_t kTokenCounts[] = {1, 2, 7, 8, 9, 16, 17, 33, 64, 65, kMaxTokens};
constexpr int32_t kNumSms = 132;

StepLimits limits() {
  return {.max_tokens = kMaxTokens, .hidden_size = 4096, .ffn_size = 512};
}

double nmse(std::span<const float> values, std::span<const double> expected) {
  if (values.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double error = 0.0;
  double power = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += (values[i] - expected[i]) * (values[i] - expected[i]);
    power += expected[i] * expected[i];
  }
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error / power;
}

std::span<const float> first(const std::vector<float>& values, int64_t count) {
  return std::span(values).first(static_cast<size_t>(count));
}

/// Errors of sums in f32; of weights or outputs rounded to bf16; and of weights whose scale and minimum are rounded.
constexpr double kExactNmse = 1e-10;
constexpr double kRoundedNmse = 8e-6;
constexpr double kScaledNmse = 2e-5;

double tolerance(const Weight& weight, DType x, DType out, int64_t tokens) {
  const ProductShape shape{
      .weight = weight.dtype, .x = x, .out = out, .rows = weight.rows, .cols = weight.cols};
  const DeviceFacts any_gpu{.sms = kNumSms, .shared_bytes = 227 << 10};
  const bool may_stream = is_tiled(weight.dtype) && x == DType::bf16 && tokens > 1 && weight.rows % 4 == 0;
  return kExactNmse + (out == DType::bf16 ? kRoundedNmse : 0.0) +
         (choose(shape, tokens, any_gpu) == ProductKernel::dequantise_matmul ? kRoundedNmse : 0.0) +
         (may_stream ? kScaledNmse : 0.0);
}

std::vector<int64_t> row_lengths(DType dtype) {
  switch (traits(dtype).block_elements) {
    case 1:
      return {8, 264, 1032, 4096};
    case 32:
      return {32, 1024, 2080};
    case kFp8Block:
      return {32, 704, 1024, 2080};
    default:
      return {256, 1024, 2816};
  }
}

class CudaLinearOfType : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(CudaLinearOfType, MatchesTheReferenceForAnyShapeAndNumberOfTokens) {
  LinearOps ops(kNumSms, limits());
  const DType x_type = GetParam() == DType::f32 ? DType::f32 : DType::bf16;
  for (const int64_t cols : row_lengths(GetParam())) {
    const int64_t rows = cols == 1024 ? 304 : 23;
    const DeviceWeight weight(GetParam(), rows, cols, 3);
    const std::vector<float> x = random_activations(x_type, kMaxTokens * cols, 4);
    const Matrix expected = reference::linear(reference::to_matrix(x, kMaxTokens, cols), weight.values());
    for (const int64_t tokens : kTokenCounts) {
      for (const DType out_type : {DType::f32, DType::bf16}) {
        if (x_type == DType::f32 && out_type != DType::f32) continue;
        const DeviceTensor in(x_type, tokens, cols, first(x, tokens * cols));
        const DeviceTensor out(out_type, tokens, rows);
        Launch launch(nullptr, kNumSms);
        const Weight w = weight.weight();
        ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
        const std::span<const double> wanted =
            std::span(expected.data).first(static_cast<size_t>(tokens * rows));
        EXPECT_LT(nmse(out.values(), wanted), tolerance(w, x_type, out_type, tokens))
            << "K " << cols << ", " << tokens << " tokens, out " << name(out_type);
      }
    }
  }
}

TEST_P(CudaLinearOfType, IsExactWithActivationsInF32) {
  LinearOps ops(kNumSms, limits());
  const int64_t cols = row_lengths(GetParam())[1];
  constexpr int64_t kRows = 304;
  const DeviceWeight weight(GetParam(), kRows, cols, 3), up(GetParam(), kRows, cols, 8);
  const std::vector<float> x = random_activations(DType::f32, kMaxTokens * cols, 4);
  const Matrix expected = reference::linear(reference::to_matrix(x, kMaxTokens, cols), weight.values());
  const Matrix gated =
      reference::gate_up_swiglu(reference::to_matrix(x, kMaxTokens, cols), weight.values(), up.values());
  for (const int64_t tokens : {1, 7, 65}) {
    const DeviceTensor in(DType::f32, tokens, cols, first(x, tokens * cols));
    const DeviceTensor out(DType::f32, tokens, kRows), hidden(DType::f32, tokens, kRows);
    Launch launch(nullptr, kNumSms);
    const Weight w = weight.weight();
    ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
    ops.gate_up_swiglu(launch, {.x = in.tensor(), .gate = w, .up = up.weight(), .out = hidden.tensor()});
    const auto wanted = static_cast<size_t>(tokens * kRows);
    EXPECT_LT(nmse(out.values(), std::span(expected.data).first(wanted)), kExactNmse) << tokens << " tokens";
    EXPECT_LT(nmse(hidden.values(), std::span(gated.data).first(wanted)), kExactNmse) << tokens << " tokens";
  }
}

TEST_P(CudaLinearOfType, MultipliesGateAndUp) {
  LinearOps ops(kNumSms, limits());
  const DType x_type = GetParam() == DType::f32 ? DType::f32 : DType::bf16;
  constexpr int64_t kRows = 312;
  const int64_t cols = row_lengths(GetParam()).back();
  const DeviceWeight gate(GetParam(), kRows, cols, 5);
  const DeviceWeight up(GetParam(), kRows, cols, 6);
  std::vector<float> x = random_activations(x_type, kMaxTokens * cols, 7);
  const Matrix expected =
      reference::gate_up_swiglu(reference::to_matrix(x, kMaxTokens, cols), gate.values(), up.values());
  for (const int64_t tokens : kTokenCounts) {
    const DeviceTensor in(x_type, tokens, cols, first(x, tokens * cols));
    const DeviceTensor out(x_type, tokens, kRows);
    Launch launch(nullptr, kNumSms);
    ops.gate_up_swiglu(launch,
                       {.x = in.tensor(), .gate = gate.weight(), .up = up.weight(), .out = out.tensor()});
    const std::span<const double> wanted =
        std::span(expected.data).first(static_cast<size_t>(tokens * kRows));
    EXPECT_LT(nmse(out.values(), wanted), x_type == DType::f32 ? kExactNmse : 5e-5) << tokens << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaLinearOfType, testing::ValuesIn(test::every_dtype()),
                         [](const auto& param_info) { return std::string(name(param_info.param)); });

/// Two matrices of different types with biases, one behind the other in the output, and their products with some tokens.
struct TwoTypes {
  TwoTypes(DType type, int64_t first_rows, int64_t second_rows, int64_t cols, int64_t tokens)
      : x(random_activations(DType::bf16, tokens * cols, 2)),
        first(type, first_rows, cols, 3),
        second(DType::q6_k, second_rows, cols, 4),
        rows(first_rows + second_rows),
        bias(test::normal_values(rows, 5)),
        device_bias(DType::f32, 1, rows, bias) {
    const Matrix all = reference::to_matrix(x, tokens, cols);
    const Matrix of_first = reference::linear(all, first.values());
    const Matrix of_second = reference::linear(all, second.values());
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t r = 0; r < rows; ++r)
        expected.push_back(bias[r] + (r < first_rows ? of_first.data[t * first_rows + r]
                                                     : of_second.data[t * second_rows + r - first_rows]));
    }
  }

  /// Returns the error of the first `tokens` tokens, and the number of launches that they took.
  std::pair<double, size_t> multiply(int64_t tokens, int32_t sms) const {
    const int64_t cols = first.weight().cols, first_rows = first.weight().rows;
    const DeviceTensor in(DType::bf16, tokens, cols, std::span(x).first(static_cast<size_t>(tokens * cols)));
    const auto* biases = static_cast<const float*>(device_bias.tensor().data);
    const Weight weights[] = {first.weight(), second.weight()};
    const Weight bias_weights[] = {{biases, DType::f32, 1, 1, first_rows},
                                   {biases + first_rows, DType::f32, 1, 1, rows - first_rows}};
    LinearOps ops(sms, limits());
    const DeviceTensor out(DType::f32, tokens, rows);
    LaunchLog log({}, true);
    log.begin_op(0);
    Launch launch(nullptr, sms, {}, &log);
    ops.linear(launch, {in.tensor(), weights, bias_weights, out.tensor()});
    return {nmse(out.values(), std::span(expected).first(static_cast<size_t>(tokens * rows))),
            log.launches().size()};
  }

  std::vector<float> x;
  DeviceWeight first, second;
  int64_t rows;
  std::vector<float> bias;
  DeviceTensor device_bias;
  std::vector<double> expected;
};

/// Queries and keys of one type beside values of another: some blocks compute the one, others the other.
TEST(CudaLinear, MultipliesTwoTypesInOneLaunch) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const DType type : {DType::q4_k, DType::q5_k, DType::q4_0}) {
    for (const auto& [first_rows, second_rows] : {std::pair{5120, 1024}, {40, 24}, {20, 4}, {4, 3000}}) {
      const TwoTypes both(type, first_rows, second_rows, 1280, 8);
      for (const int64_t tokens : {1, 2, 8}) {
        for (const int32_t sms : {2, 3, kNumSms}) {
          const auto [error, launches] = both.multiply(tokens, sms);
          EXPECT_LT(error, kExactNmse) << name(type) << ", " << tokens << " tokens, " << first_rows << " + "
                                       << second_rows << " rows, " << sms;
          EXPECT_EQ(launches, type == DType::q4_0 ? 2u : 1u);
        }
      }
    }
  }
}

/// The same if each block has a tile of one or the other.
TEST(CudaLinear, StreamsTwoTypesInOneLaunch) {
  if (!test::has_cuda_device() || !has_wgmma()) GTEST_SKIP() << "no GPU with Hopper's tensor cores";
  constexpr double kBf16Nmse = 2e-5;  // weights rounded to bf16
  for (const DType type : {DType::q4_k, DType::q5_k, DType::q4_0}) {
    for (const auto& [first_rows, second_rows] : {std::pair{1024, 328}, {40, 24}, {20, 4}, {4, 520}}) {
      const TwoTypes both(type, first_rows, second_rows, 768, 128);
      const int64_t tiles = row_tiles(first_rows, false, 1) + row_tiles(second_rows, false, 1);
      for (const int64_t tokens : {9, 16, 17, 64, 100, 128}) {
        for (const int32_t sms : {2, kNumSms}) {
          const auto [error, launches] = both.multiply(tokens, sms);
          EXPECT_LT(error, kBf16Nmse) << name(type) << ", " << tokens << " tokens, " << first_rows << " + "
                                      << second_rows << " rows, " << sms;
          EXPECT_EQ(launches, type != DType::q4_0 && tiles <= sms ? 1u : 2u);
        }
      }
    }
  }
}

/// x is f32, of wide range, with a norm in front: rows equal those of the separate norm and product.
TEST(CudaLinear, TakesANormInFrontOfOneToken) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr float kEps = 1e-5f;
  for (const DType type : test::every_dtype()) {
    LinearOps ops(kNumSms, limits());
    for (const int64_t cols : row_lengths(type)) {
      const int64_t rows = cols == 1024 ? 4 * kNumSms * kStripRows + 23 : 39;
      const DeviceWeight weight(type, rows, cols, 1), up(type, rows, cols, 2);
      const Weight w = weight.weight();
      if (!takes_norm({&w, 1}, 1, device_facts(kNumSms))) {
        EXPECT_TRUE(type == DType::f32 || type == DType::f16) << name(type) << ' ' << cols;
        continue;
      }
      EXPECT_FALSE(takes_norm({&w, 1}, 2, device_facts(kNumSms)));
      std::vector<float> x = test::normal_values(cols, 3);
      for (size_t i = 0; i < x.size(); ++i)
        x[i] *= i % 7 == 3 ? 20.0f : 0.3f;
      const std::vector<float> scale = test::normal_values(cols, 4);
      Matrix normed(1, cols);
      double squares = 0.0;
      for (const float value : x)
        squares += double{value} * value;
      for (size_t i = 0; i < x.size(); ++i)
        normed.data[i] = x[i] * scale[i] / std::sqrt(squares / static_cast<double>(cols) + kEps);
      const DeviceTensor in(DType::f32, 1, cols, x), norm(DType::f32, 1, cols, scale);
      const DeviceTensor out(DType::f32, 1, rows), hidden(DType::bf16, 1, rows);
      const FrontNorm front{{norm.tensor().data, DType::f32, 1, 1, cols}, kEps};
      Launch launch(nullptr, kNumSms);
      ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor(), .norm = front});
      ops.gate_up_swiglu(
          launch, {.x = in.tensor(), .gate = w, .up = up.weight(), .out = hidden.tensor(), .norm = front});
      const bool rounds_x = type == DType::bf16 || type == DType::fp8 || type == DType::mxfp4;
      EXPECT_LT(nmse(out.values(), reference::linear(normed, weight.values()).data),
                rounds_x ? kRoundedNmse : 1e-7)
          << name(type) << ' ' << cols;
      EXPECT_LT(nmse(hidden.values(), reference::gate_up_swiglu(normed, weight.values(), up.values()).data),
                5e-5)
          << name(type) << ' ' << cols;
    }
  }
}

/// A NaN or infinity stays one, also if the numbers of a chunk are integers of a common unit.
TEST(CudaLinear, PassesOnWhatIsNoNumber) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kRows = 32, kCols = 512;
  for (const DType type : {DType::q4_k, DType::q6_k, DType::q8_0, DType::fp8, DType::bf16}) {
    LinearOps ops(kNumSms, limits());
    const DeviceWeight weight(type, kRows, kCols, 1);
    const Weight w = weight.weight();
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      for (const int64_t tokens : {1, 3}) {
        std::vector<float> x = random_activations(DType::bf16, tokens * kCols, 2);
        x[300] = bad;  // of the first matrix
        const DeviceTensor in(DType::bf16, tokens, kCols, x), out(DType::f32, tokens, kRows);
        Launch launch(nullptr, kNumSms);
        ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
        const std::vector<float> values = out.values();
        for (size_t i = 0; i < values.size(); ++i)
          EXPECT_EQ(std::isfinite(values[i]), i >= kRows) << name(type) << ' ' << bad << ", " << i;
      }
    }
  }
}

TEST(CudaLinear, BlocksOfTwoMatricesHaveAboutAsMuchToRead) {
  for (const int32_t blocks : {2, 3, 7, 132}) {
    for (const auto& [first, second] : {std::pair{StripLoad{320, 36}, StripLoad{64, 54}},
                                        {StripLoad{1, 10}, StripLoad{1, 10}},
                                        {StripLoad{1000, 1}, StripLoad{2, 1}},
                                        {StripLoad{3, 7}, StripLoad{500, 5}}}) {
      const int32_t of_first = blocks_of_first(first, second, blocks);
      ASSERT_GE(of_first, 1);
      ASSERT_LT(of_first, blocks);
      const auto most = [&, &one = first, &other = second](int32_t some) {
        return std::max(one.most_bytes(some), other.most_bytes(blocks - some));
      };
      for (int32_t some = 1; some < blocks; ++some)
        EXPECT_LE(most(of_first), most(some));
    }
  }
  EXPECT_EQ(blocks_of_first({320, 36}, {64, 54}, 132), 100);  // up to four strips, and two
}

TEST(CudaLinear, PutsSeveralWeightsSideBySideWithBiasesAndAddsToTheResidual) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kCols = 512;
  LinearOps ops(kNumSms, limits());
  const DeviceWeight q(DType::q4_k, 48, kCols, 1);
  const DeviceWeight k(DType::bf16, 8, kCols, 2);
  const DeviceWeight v(DType::q6_k, 17, kCols, 3);
  const DeviceTensor bias(DType::f32, 1, 73, test::normal_values(73, 4));
  const std::vector<float> bias_values = bias.values();
  const auto* b = static_cast<const float*>(bias.tensor().data);
  const Weight weights[] = {q.weight(), k.weight(), v.weight()};
  const Weight biases[] = {{b, DType::f32, 1, 1, 48}, {}, {b + 56, DType::f32, 1, 1, 17}};
  for (const int64_t tokens : {1, 9, 70}) {
    const std::vector<float> x = random_activations(DType::bf16, tokens * kCols, 5);
    const std::vector<float> residual = test::normal_values(tokens * 73, 6);
    const DeviceTensor in(DType::bf16, tokens, kCols, x);
    const DeviceTensor out(DType::f32, tokens, 73, residual);
    Launch launch(nullptr, kNumSms);
    ops.linear(launch, {in.tensor(), weights, biases, out.tensor(), true});
    Matrix expected = reference::to_matrix(residual, tokens, 73);
    int64_t col = 0;
    for (const DeviceWeight* weight : {&q, &k, &v}) {
      const Matrix product = reference::linear(reference::to_matrix(x, tokens, kCols), weight->values());
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < product.cols; ++r) {
          expected.at(t, col + r) += product.at(t, r) + (weight == &k ? 0.0f : bias_values[col + r]);
        }
      }
      col += product.cols;
    }
    EXPECT_LT(nmse(out.values(), expected.data), 2 * kRoundedNmse) << tokens << " tokens";
  }
}

TEST(CudaLinear, GivesTheSameBitsWhenKIsDividedOverBlocks) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kRows = 512;
  constexpr int64_t kCols = 4096;
  constexpr int64_t kTokens = 40;
  LinearOps ops(kNumSms, limits());
  const DeviceWeight weight(DType::q4_k, kRows, kCols, 1);
  const Weight w = weight.weight();
  const DeviceTensor in(DType::bf16, kTokens, kCols, random_activations(DType::bf16, kTokens * kCols, 2));
  std::vector<float> first_values;
  for (int run = 0; run < 5; ++run) {
    const DeviceTensor out(DType::f32, kTokens, kRows);
    Launch launch(nullptr, kNumSms);
    ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
    const std::vector<float> values = out.values();
    if (run == 0) first_values = values;
    EXPECT_EQ(values, first_values);
  }
}

TEST(CudaLinear, MultipliesNeighboursInMemoryAsOneMatrix) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  LinearOps ops(kNumSms, limits());
  constexpr int64_t kCols = 512;
  const DeviceWeight whole(DType::q8_0, 96, kCols, 1);
  Weight first_part = whole.weight();
  first_part.rows = 64;
  Weight second_part = whole.weight();
  second_part.rows = 32;
  second_part.data = static_cast<const char*>(second_part.data) + first_part.matrix_bytes();
  const Weight parts[] = {first_part, second_part};
  for (const int64_t tokens : {1, 5, 20}) {
    const std::vector<float> x = random_activations(DType::bf16, tokens * kCols, 2);
    const DeviceTensor in(DType::bf16, tokens, kCols, x);
    const DeviceTensor out(DType::bf16, tokens, 96);
    Launch launch(nullptr, kNumSms);
    ops.linear(launch, {.x = in.tensor(), .weights = parts, .out = out.tensor()});
    const Matrix expected = reference::linear(reference::to_matrix(x, tokens, kCols), whole.values());
    EXPECT_LT(nmse(out.values(), expected.data), kRoundedNmse + kScaledNmse) << tokens << " tokens";
  }
}

TEST(CudaLinear, TakesF32WeightsWithBf16Activations) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  LinearOps ops(kNumSms, limits());
  const DeviceWeight weight(DType::f32, 37, 264, 1);
  const std::vector<float> x = random_activations(DType::bf16, kMaxTokens * 264, 2);
  const DeviceTensor in(DType::bf16, kMaxTokens, 264, x);
  const DeviceTensor out(DType::f32, kMaxTokens, 37);
  Launch launch(nullptr, kNumSms);
  const Weight w = weight.weight();
  ops.linear(launch, {.x = in.tensor(), .weights = {&w, 1}, .out = out.tensor()});
  const Matrix expected = reference::linear(reference::to_matrix(x, kMaxTokens, 264), weight.values());
  EXPECT_LT(nmse(out.values(), expected.data), 1e-12);
}

/// Tiles of rows and tokens with some left over of each, and rows with more columns than a block requests at once.
TEST(CudaLinear, TakesF32WeightsWithManyTokens) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  for (const auto& [rows, cols, tokens] : {std::tuple<int64_t, int64_t, int64_t>{128, 2048, 300},
                                           {133, 260, 257},
                                           {133, 264, 257},
                                           {17, 8, 131},
                                           {8, 4096, 256},
                                           {31, 4100, 40},
                                           {3, 9004, 5},
                                           {1, 17, 270}}) {
    LinearOps ops(kNumSms, {.max_tokens = static_cast<int32_t>(tokens), .hidden_size = cols, .ffn_size = 64});
    const DeviceWeight weight(DType::f32, rows, cols, 1);
    const std::vector<float> x = random_activations(DType::bf16, tokens * cols, 2);
    const std::vector<float> residual = test::normal_values(tokens * rows, 3);
    const DeviceTensor in(DType::bf16, tokens, cols, x), out(DType::f32, tokens, rows, residual);
    Launch launch(nullptr, kNumSms);
    const Weight w = weight.weight();
    ops.linear(launch, {in.tensor(), {&w, 1}, {}, out.tensor(), true});
    Matrix expected = reference::linear(reference::to_matrix(x, tokens, cols), weight.values());
    for (size_t i = 0; i < expected.data.size(); ++i)
      expected.data[i] += residual[i];
    EXPECT_LT(nmse(out.values(), expected.data), kExactNmse) << rows << " x " << cols << ", " << tokens;
  }
}

}  // namespace
}  // namespace minfer::cuda
