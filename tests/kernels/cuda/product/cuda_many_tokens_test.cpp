// Steps of more tokens than a grid has blocks in y or z (65,535), for every kernel that has one row for each token.
// All rows differ, so that a token that is left out, or mistaken for another, shows.

#include <cmath>

#include <gtest/gtest.h>

#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/product/product.h"
#include "kernels/half.h"
#include "tests/reference/ops.h"
#include "tests/support/cuda/cuda_data.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::CudaArray;
using test::CudaRun;
using test::CudaTensor;

constexpr int64_t kManyTokens = 70001;
constexpr int64_t kRowSize = 8;

class CudaManyTokens : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

std::vector<float> first_cols(const std::vector<float>& values, int64_t cols, int64_t first, int64_t count) {
  std::vector<float> part;
  for (size_t row = 0; row < values.size(); row += static_cast<size_t>(cols)) {
    const auto begin = values.begin() + static_cast<ptrdiff_t>(row) + first;
    part.insert(part.end(), begin, begin + count);
  }
  return part;
}

TEST_F(CudaManyTokens, AreEmbedded) {
  constexpr int64_t kVocabulary = 977;
  const std::vector<float> table = test::normal_values(kVocabulary * kRowSize, 1);
  std::vector<int32_t> ids;
  std::vector<float> expected;
  for (int64_t t = 0; t < kManyTokens; ++t) {
    ids.push_back(static_cast<int32_t>(t * 31 % kVocabulary));
    const auto row = table.begin() + ids.back() * kRowSize;
    expected.insert(expected.end(), row, row + kRowSize);
  }
  const CudaRun run;
  const CudaArray<float> device_table(table);
  const CudaArray<int32_t> device_ids(ids);
  const CudaTensor out(DType::f32, kManyTokens, kRowSize);
  cuda::Launch launch = run.launch();
  const Weight weight{
      .data = device_table.data(), .dtype = DType::f32, .rows = kVocabulary, .cols = kRowSize};
  cuda::embed(
      launch,
      {.token_ids = device_ids.data(), .table = weight, .vocab_size = kVocabulary, .out = out.tensor()});
  run.wait();
  EXPECT_EQ(out.values(), expected);
  EXPECT_TRUE(out.intact());
}

TEST_F(CudaManyTokens, AreGathered) {
  const std::vector<float> x = test::normal_values(kManyTokens * kRowSize, 2);
  std::vector<int32_t> rows;
  std::vector<float> expected;
  for (int64_t t = 0; t < kManyTokens; ++t) {
    rows.push_back(static_cast<int32_t>(kManyTokens - 1 - t));
    const auto row = x.begin() + rows.back() * kRowSize;
    expected.insert(expected.end(), row, row + kRowSize);
  }
  const CudaRun run;
  const CudaArray<int32_t> device_rows(rows);
  const CudaTensor in(DType::f32, kManyTokens, kRowSize, x), out(DType::f32, kManyTokens, kRowSize);
  cuda::Launch launch = run.launch();
  cuda::gather_rows(launch, in.tensor(), device_rows.data(), out.tensor());
  run.wait();
  EXPECT_EQ(out.values(), expected);
}

TEST_F(CudaManyTokens, AreNormalised) {
  const std::vector<float> x = test::normal_values(kManyTokens * kRowSize, 3);
  const std::vector<float> weight = test::normal_values(kRowSize, 4);
  const CudaRun run;
  const CudaArray<float> scale(weight);
  const CudaTensor in(DType::f32, kManyTokens, kRowSize, x), out(DType::f32, kManyTokens, kRowSize);
  cuda::Launch launch = run.launch();
  cuda::rms_norm(launch, in.tensor(),
                 {.data = scale.data(), .dtype = DType::f32, .count = 1, .rows = 1, .cols = kRowSize}, 1e-5f,
                 out.tensor());
  run.wait();
  EXPECT_LT(
      test::nmse(out.values(),
                 reference::rms_norm(reference::to_matrix(x, kManyTokens, kRowSize), weight, 1e-5f).data),
      1e-12);
}

TEST_F(CudaManyTokens, AreGated) {
  const std::vector<float> gate_up = test::normal_values(kManyTokens * 2 * kRowSize, 5);
  const std::vector<float> gate = first_cols(gate_up, 2 * kRowSize, 0, kRowSize);
  const std::vector<float> up = first_cols(gate_up, 2 * kRowSize, kRowSize, kRowSize);
  std::vector<double> expected;
  for (size_t i = 0; i < gate.size(); ++i)
    expected.push_back(reference::silu(gate[i]) * up[i]);
  const CudaRun run;
  const CudaTensor in(DType::f32, kManyTokens, 2 * kRowSize, gate_up), out(DType::f32, kManyTokens, kRowSize);
  cuda::Launch launch = run.launch();
  cuda::swiglu(launch, in.tensor(), out.tensor());
  run.wait();
  EXPECT_LT(test::nmse(out.values(), expected), 1e-10);
}

TEST_F(CudaManyTokens, GetTheirBias) {
  const std::vector<float> x = test::normal_values(kManyTokens * kRowSize, 6);
  const std::vector<float> bias = test::normal_values(kRowSize, 7);
  std::vector<float> expected = x;
  for (size_t i = 0; i < x.size(); ++i)
    expected[i] += bias[i % kRowSize];
  const CudaRun run;
  const CudaArray<float> device_bias(bias);
  const CudaTensor out(DType::f32, kManyTokens, kRowSize, x);
  cuda::Launch launch = run.launch();
  cuda::add_bias(launch, device_bias.data(), out.tensor());
  run.wait();
  EXPECT_EQ(out.values(), expected);
}

TEST_F(CudaManyTokens, AreConverted) {
  const std::vector<float> x = test::rounded(test::normal_values(kManyTokens * kRowSize, 8), DType::bf16);
  std::vector<uint16_t> expected;
  for (const float value : x)
    expected.push_back(f32_to_f16(value));
  const CudaRun run;
  const CudaTensor in(DType::bf16, kManyTokens, kRowSize, x);
  const CudaArray<uint16_t> out(std::vector<uint16_t>(expected.size(), 0x5a5a));
  cuda::Launch launch = run.launch();
  cuda::convert_to_f16(launch, in.tensor(), out.data());
  run.wait();
  EXPECT_EQ(out.values(), expected);
}

/// With four tokens a block, the limit is at 262,140.
TEST_F(CudaManyTokens, AreMultiplied) {
  constexpr int64_t kMany = 4 * 65535 + 3;
  constexpr int64_t kRows = 3;
  for (const int64_t cols : {4, 3}) {  // vectors, and an element at a time
    const std::vector<float> x = test::normal_values(kMany * cols, 9);
    const std::vector<float> weight = test::normal_values(kRows * cols, 10);
    const reference::Matrix expected =
        reference::linear(reference::to_matrix(x, kMany, cols), reference::to_matrix(weight, kRows, cols));
    const CudaRun run;
    const CudaArray<float> device_weight(weight);
    const CudaTensor in(DType::f32, kMany, cols, x), out(DType::f32, kMany, kRows);
    cuda::Launch launch = run.launch();
    cuda::row_product(launch, {.weight = {.data = device_weight.data(),
                                          .dtype = DType::f32,
                                          .count = 1,
                                          .rows = kRows,
                                          .cols = cols},
                               .x = in.tensor(),
                               .out = out.tensor()});
    run.wait();
    EXPECT_LT(test::nmse(out.values(), expected.data), 1e-10) << cols << " columns";
    EXPECT_TRUE(out.intact());
  }
}

}  // namespace
}  // namespace minfer
