#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

#include "kernels/cpu/product/linear.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "tests/support/cuda/cuda_device.h"
#include "tests/support/cuda/cuda_operands.h"

namespace minfer::cuda {
namespace {

using reference::Matrix;
using test::DeviceTensor;
using test::DeviceWeight;
using test::random_activations;

constexpr int32_t kLoadingSms = 132;

std::vector<int64_t> loaded_row_lengths(DType dtype) {
  switch (traits(dtype).block_elements) {
    case 1:
      return {1, 30, 1032};
    case 32:
      return {32, 1024, 2080};
    case kFp8Block:
      return {32, 704, 2080};
    default:
      return {256, 2816};
  }
}

/// Token ids in device memory.
DeviceBuffer device_ids(std::span<const int32_t> ids) {
  DeviceBuffer buffer(ids.size_bytes(), "ids");
  check(cudaMemcpy(buffer.data(), ids.data(), ids.size_bytes(), cudaMemcpyHostToDevice), "copy");
  return buffer;
}

double worst_difference(std::span<const float> values, const Matrix& table, int64_t first_row,
                        std::span<const int32_t> ids) {
  double worst = 0.0;
  for (size_t t = 0; t < ids.size(); ++t) {
    for (int64_t c = 0; c < table.cols; ++c) {
      worst = std::max(worst, std::abs(values[t * table.cols + c] - table.at(first_row + ids[t], c)));
    }
  }
  return worst;
}

class CudaWeightsOfType : public testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_P(CudaWeightsOfType, EmbedsRowsExactly) {
  for (const int64_t cols : loaded_row_lengths(GetParam())) {
    const DeviceWeight table(GetParam(), 41, cols, 1);
    const std::vector<int32_t> ids = test::permutation(41, 2);
    const DeviceBuffer on_device = device_ids(ids);
    const DeviceTensor out(DType::f32, 41, cols);
    Launch launch(nullptr, kLoadingSms);
    embed(launch, {.token_ids = on_device.as<int32_t>(),
                   .table = table.weight(),
                   .vocab_size = 41,
                   .out = out.tensor()});
    EXPECT_LT(worst_difference(out.values(), table.values(), 0, ids), 1e-6) << "K " << cols;
  }
}

TEST_P(CudaWeightsOfType, EmbedsZerosForTokensOfOtherRanks) {
  const int64_t cols = loaded_row_lengths(GetParam()).back();
  const DeviceWeight table(GetParam(), 41, cols, 1);
  const std::vector<int32_t> ids{99, 100, 140, 141};
  const DeviceBuffer on_device = device_ids(ids);
  const DeviceTensor out(DType::f32, 4, cols);
  Launch launch(nullptr, kLoadingSms);
  embed(launch, {.token_ids = on_device.as<int32_t>(),
                 .table = table.weight(),
                 .first_token = 100,
                 .vocab_size = 200,
                 .out = out.tensor()});
  const std::vector<float> values = out.values();
  const Matrix expected = table.values();
  for (int64_t col = 0; col < cols; ++col) {
    const auto at = [&](int64_t row) { return values[static_cast<size_t>(row * cols + col)]; };
    EXPECT_EQ(at(0), 0.0f);
    EXPECT_NEAR(at(1), expected.at(0, col), 1e-6);
    EXPECT_NEAR(at(2), expected.at(40, col), 1e-6);
    EXPECT_EQ(at(3), 0.0f);
  }
}

TEST_P(CudaWeightsOfType, KeepsExpertsAtAFixedDistance) {
  constexpr int64_t kRows = 23;
  constexpr int64_t kExperts = 3;
  const int64_t cols = loaded_row_lengths(GetParam()).back();
  const DeviceWeight experts(GetParam(), kRows, cols, 1, kExperts);
  const Matrix values = experts.values();
  const std::vector<int32_t> ids = test::permutation(kRows, 2);
  const DeviceBuffer on_device = device_ids(ids);
  for (int64_t e = 0; e < kExperts; ++e) {
    Weight expert = experts.weight();
    expert.data = static_cast<const char*>(expert.data) + e * matrix_stride_bytes(expert.dtype, kRows, cols);
    const DeviceTensor out(DType::f32, kRows, cols);
    Launch launch(nullptr, kLoadingSms);
    embed(launch,
          {.token_ids = on_device.as<int32_t>(), .table = expert, .vocab_size = kRows, .out = out.tensor()});
    EXPECT_LT(worst_difference(out.values(), values, e * kRows, ids), 1e-6) << "expert " << e;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, CudaWeightsOfType, testing::ValuesIn(test::every_dtype()),
                         [](const auto& param_info) { return std::string(name(param_info.param)); });

/// The values of a weight in its device layout, in f32.
std::vector<float> embedded(const Weight& weight) {
  std::vector<int32_t> ids(static_cast<size_t>(weight.rows));
  std::iota(ids.begin(), ids.end(), 0);
  const DeviceBuffer on_device = device_ids(ids);
  const DeviceTensor out(DType::f32, weight.rows, weight.cols);
  Launch launch(nullptr, kLoadingSms);
  embed(launch, {.token_ids = on_device.as<int32_t>(),
                 .table = weight,
                 .vocab_size = static_cast<int32_t>(weight.rows),
                 .out = out.tensor()});
  return out.values();
}

/// Numbers over the whole range of f32, with rows of zeros and of non-finite numbers among them.
std::vector<float> wild_values(int64_t rows, int64_t cols) {
  std::vector<float> values = test::normal_values(rows * cols, 3);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t col = 0; col < cols; ++col)
      values[static_cast<size_t>(row * cols + col)] *= std::ldexp(1.0f, static_cast<int>(row % 7 * 30 - 90));
  }
  std::fill_n(values.begin() + cols, cols, 0.0f);
  values[static_cast<size_t>(3 * cols + 5)] = INFINITY;
  values[static_cast<size_t>(20 * cols + 40)] = NAN;
  return values;
}

/// The same scales and codes as the CPU backend makes, bit for bit.
TEST(CudaWeights, BecomeTheSameFp8AsOnTheCpu) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kRows = 37;
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const int64_t cols : {32, 704, 2080}) {
      std::vector<uint8_t> bytes = test::random_weights(dtype, kRows, cols, 1);
      if (dtype == DType::bf16) bytes = test::encode(wild_values(kRows, cols), dtype);
      HostTensor tensor{"weight", bytes.data(), dtype, 1, kRows, cols};
      tensor.quantise_to = DType::fp8;
      ThreadPool pool(2);
      std::vector<BlockFp8> blocks(tensor.loaded_bytes() / sizeof(BlockFp8));
      cpu::quantise_to_fp8(tensor, cpu::selected_isa(), pool, blocks.data());
      std::vector<float> expected(static_cast<size_t>(kRows * cols));
      for (int64_t row = 0; row < kRows; ++row) {
        cpu::dequantise_row(blocks.data() + row * std::ssize(blocks) / kRows, DType::fp8, cols,
                            cpu::selected_isa(), expected.data() + row * cols);
      }
      const DeviceBuffer raw(bytes.size(), "raw"), memory(device_bytes(tensor), "weight");
      check(cudaMemset(memory.data(), 0xff, memory.bytes()), "poison");
      check(cudaMemcpy(raw.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copy");
      store_rows(nullptr, tensor, 0, 16, raw.data(), memory.data());
      const size_t second = 16 * row_bytes(dtype, cols);
      store_rows(nullptr, tensor, 16, kRows - 16, raw.as<uint8_t>() + second, memory.data());
      const std::vector<float> found = embedded(device_weight(tensor, memory.data()));
      for (size_t i = 0; i < expected.size(); ++i) {
        if (std::isnan(expected[i])) {
          ASSERT_TRUE(std::isnan(found[i])) << name(dtype) << " K " << cols << " element " << i;
        } else {
          ASSERT_EQ(found[i], expected[i]) << name(dtype) << " K " << cols << " element " << i;
        }
      }
    }
  }
}

TEST(CudaWeights, ReadsTokenIdsWhenAGraphReplays) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kCols = 512;
  const DeviceWeight table(DType::q6_k, 41, kCols, 1);
  const Matrix values = table.values();
  const int32_t first_ids[] = {3, 40, 7};
  const DeviceBuffer on_device = device_ids(first_ids);
  const DeviceTensor out(DType::bf16, 3, kCols);
  const Stream stream = make_stream();
  const GraphExec executable = replayable(stream.get(), "capture", [&] {
    Launch launch(stream.get(), kLoadingSms);
    embed(launch, {.token_ids = on_device.as<int32_t>(),
                   .table = table.weight(),
                   .vocab_size = 41,
                   .out = out.tensor()});
  });
  const int32_t second_ids[] = {0, 1, 39};
  for (const std::span<const int32_t> ids : {std::span(first_ids), std::span(second_ids)}) {
    check(cudaMemcpy(on_device.data(), ids.data(), ids.size_bytes(), cudaMemcpyHostToDevice), "copy");
    check(cudaGraphLaunch(executable.get(), stream.get()), "launch");
    EXPECT_LT(worst_difference(out.values(), values, 0, ids), 0.3);
  }
}

TEST(CudaWeights, GathersRows) {
  if (!test::has_cuda_device()) GTEST_SKIP() << "no CUDA device";
  constexpr int64_t kCols = 1030;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::vector<float> x = random_activations(dtype, 20 * kCols, 1);
    const DeviceTensor in(dtype, 20, kCols, x);
    const DeviceTensor out(dtype, 3, kCols);
    const int32_t rows[] = {17, 0, 5};
    const DeviceBuffer device_rows(sizeof rows, "rows");
    check(cudaMemcpy(device_rows.data(), rows, sizeof rows, cudaMemcpyHostToDevice), "copy");
    Launch launch(nullptr, kLoadingSms);
    gather_rows(launch, in.tensor(), device_rows.as<int32_t>(), out.tensor());
    const std::vector<float> values = out.values();
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_TRUE(std::equal(values.begin() + i * kCols, values.begin() + (i + 1) * kCols,
                             x.begin() + rows[i] * kCols));
    }
  }
}

TEST(CudaWeights, TakesTheBytesOfTheFile) {
  const HostTensor experts{"experts", nullptr, DType::q4_k, 8, 14336, 4096};
  EXPECT_EQ(device_bytes(experts), experts.bytes());
  const HostTensor ragged{"ragged", nullptr, DType::q8_0, 1, 17, 288};
  EXPECT_EQ(device_bytes(ragged), 4 * 16 * 272);
  const HostTensor microscaled{"microscaled", nullptr, DType::mxfp4, 8, 2880, 2816};
  EXPECT_EQ(device_bytes(microscaled), microscaled.bytes());
  const HostTensor rare{"rare", nullptr, DType::q3_k, 1, 4096, 2816};
  EXPECT_EQ(device_bytes(rare), rare.bytes());
  const HostTensor converted{"converted", nullptr, DType::q4_1, 2, 3, 64};
  EXPECT_EQ(device_bytes(converted), 2 * 512) << "experts as bf16";
}

}  // namespace
}  // namespace minfer::cuda
