// Weights that the CPU backend quantises to fp8 at load.
#include "tests/reference/quantise.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/backend.h"
#include "kernels/base/error.h"
#include "kernels/cpu/product/linear.h"
#include "kernels/half.h"
#include "tests/reference/dequantise.h"
#include "tests/support/cuda/device_data.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using reference::Matrix;
using ::testing::HasSubstr;

/// A tensor of plain elements to be quantised to fp8, with its bytes.
struct PlainTensor {
  PlainTensor(DType dtype, int64_t count, int64_t rows, int64_t cols)
      : bytes(test::random_weights(dtype, count * rows, cols, 1)), tensor{"weight", bytes.data(), dtype,
                                                                          count,    rows,         cols} {
    tensor.quantise_to = DType::fp8;
  }
  std::vector<uint8_t> bytes;
  HostTensor tensor;
};

std::vector<BlockFp8> quantised(const HostTensor& tensor, int32_t threads = 2) {
  ThreadPool pool(threads);
  std::vector<BlockFp8> blocks(tensor.loaded_bytes() / sizeof(BlockFp8));
  cpu::quantise_to_fp8(tensor, cpu::selected_isa(), pool, blocks.data());
  return blocks;
}

Matrix values_of(const std::vector<BlockFp8>& blocks, const HostTensor& tensor) {
  return reference::dequantise(blocks.data(), DType::fp8, tensor.count * tensor.rows, tensor.cols);
}

TEST(QuantiseToFp8, RowsOfAnyPlainTypeAndLengthBecomeWhatTheDefinitionSays) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const int64_t cols : {1, 17, 128, 130, 704}) {
      const PlainTensor plain(dtype, 3, 5, cols);
      const std::vector<BlockFp8> blocks = quantised(plain.tensor);
      EXPECT_EQ(values_of(blocks, plain.tensor).data, reference::loaded_values(plain.tensor).data)
          << name(dtype) << ' ' << cols;
      const int64_t behind = cols % kFp8Block;
      for (int64_t i = behind; behind > 0 && i < kFp8Block; ++i)
        ASSERT_EQ(blocks.back().qs[i], 0) << "behind a row of " << cols;
    }
  }
}

TEST(QuantiseToFp8, TheErrorIsHalfAStepOfTheCode) {
  const PlainTensor plain(DType::bf16, 1, 64, 4096);
  const std::vector<BlockFp8> blocks = quantised(plain.tensor);
  const Matrix before = reference::dequantise(plain.bytes.data(), DType::bf16, 64, 4096);
  const Matrix after = values_of(blocks, plain.tensor);
  double error = 0.0, power = 0.0;
  for (int64_t row = 0; row < 64; ++row) {
    const double scale = bf16_to_f32(blocks[static_cast<size_t>(row * 4096 / kFp8Block)].d);
    for (int64_t col = 0; col < 4096; ++col) {
      const double w = before.at(row, col), difference = after.at(row, col) - w;
      ASSERT_LE(std::abs(difference), std::max(std::abs(w) * 0x1p-4, scale * 0x1p-10)) << w;
      error += difference * difference;
      power += w * w;
    }
  }
  EXPECT_LT(error / power, 8e-4) << "of normal values";
}

TEST(QuantiseToFp8, ThreadsAndInstructionSetsChangeNothing) {
  const PlainTensor plain(DType::f16, 2, 33, 288);
  const std::vector<BlockFp8> expected = quantised(plain.tensor, 1);
  for (const std::string& isa : test::IsaScope::available()) {
    const test::IsaScope scope(isa);
    for (const int32_t threads : {1, 3}) {
      const std::vector<BlockFp8> blocks = quantised(plain.tensor, threads);
      EXPECT_EQ(std::memcmp(blocks.data(), expected.data(), plain.tensor.loaded_bytes()), 0) << isa;
    }
  }
}

TEST(QuantiseToFp8, TakesPartsOfRows) {
  const PlainTensor whole(DType::bf16, 2, 6, 256);
  HostTensor part = whole.tensor;
  part.row_stride = whole.tensor.stride_of_rows();
  part.matrix_stride = whole.tensor.stride_of_matrices();
  part.data = whole.tensor.row(0, 1) + row_bytes(DType::bf16, 64);
  part.rows = 4;
  part.cols = 96;
  const Matrix all = reference::dequantise(whole.bytes.data(), DType::bf16, 12, 256);
  Matrix values(8, 96);
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t col = 0; col < 96; ++col)
      values.at(row, col) = all.at(row / 4 * 6 + 1 + row % 4, 64 + col);
  }
  EXPECT_EQ(values_of(quantised(part), part).data, reference::fp8_rows(values).data);
}

TEST(QuantiseToFp8, ZerosStayAndWhatIsNotFiniteMakesItsRowNan) {
  std::vector<float> values(4 * 32, 0.5f);
  std::fill_n(values.begin(), 32, 0.0f);
  values[5] = -0.0f;
  values[32 + 7] = std::numeric_limits<float>::infinity();
  values[64 + 9] = std::numeric_limits<float>::quiet_NaN();
  HostTensor tensor{"weight", values.data(), DType::f32, 1, 4, 32};
  tensor.quantise_to = DType::fp8;
  const Matrix found = values_of(quantised(tensor), tensor);
  for (int64_t col = 0; col < 32; ++col) {
    EXPECT_EQ(found.at(0, col), 0.0);
    EXPECT_TRUE(std::isnan(found.at(1, col)));
    EXPECT_TRUE(std::isnan(found.at(2, col)));
    EXPECT_NEAR(found.at(3, col), 0.5, 0.5 * 0x1p-4);
  }
}

TEST(QuantiseToFp8, RefusesWhatIsQuantisedAlready) {
  HostTensor tensor{"blk.0.ffn_up.weight", nullptr, DType::q8_0, 1, 1, 32};
  tensor.quantise_to = DType::fp8;
  const auto backend = make_cpu_backend(1);
  const auto refusal = [&] {
    try {
      backend->load(tensor);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_THAT(refusal(), HasSubstr("tensor blk.0.ffn_up.weight: q8_0 to fp8, expected f32, f16 or bf16"));
  tensor.dtype = DType::f32;
  tensor.quantise_to = DType::q8_0;
  EXPECT_THAT(refusal(), HasSubstr("tensor blk.0.ffn_up.weight: to q8_0, expected fp8"));
}

TEST(QuantiseToFp8, ABackendMultipliesWithWhatItMade) {
  constexpr int64_t num_tokens = 5;
  const PlainTensor plain(DType::bf16, 1, 37, 1184);
  const auto backend = make_cpu_backend(2);
  const Weight weight = backend->load(plain.tensor);
  EXPECT_EQ(weight.dtype, DType::fp8);
  EXPECT_EQ(weight.file_dtype, DType::bf16);
  EXPECT_EQ(weight.matrix_bytes(), 37u * 10 * 130);
  EXPECT_EQ(weight.file_matrix_bytes(), 37u * 1184 * 2);
  const std::vector<float> x = test::normal_values(num_tokens * 1184, 2);
  const test::GuardedTensor in(*backend, num_tokens, 1184, x), out(*backend, num_tokens, 37);
  backend->linear(0, {.x = in.tensor(), .weights = {&weight, 1}, .out = out.tensor()});
  const Matrix expected =
      reference::linear(reference::to_matrix(x, num_tokens, 1184), reference::loaded_values(plain.tensor));
  EXPECT_LT(test::nmse(out.values(), expected.data), 1e-12);
}

}  // namespace
}  // namespace minfer
