#include "tests/reference/dequantise.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/base/error.h"
#include "kernels/cpu/lanes/isa.h"
#include "kernels/cpu/product/linear.h"
#include "tests/support/paths.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

/// A row of random blocks, with its values from the `gguf` Python
/// package (tests/kernels/data/make_dequantised_rows.py).
struct DequantisedRow {
  DType dtype;
  std::vector<char> bytes;
  std::vector<float> values;
};

std::vector<DequantisedRow> read_rows() {
  std::ifstream file(source_path("tests/kernels/data/dequantised_rows.bin"), std::ios::binary);
  std::vector<DequantisedRow> rows;
  uint32_t header[2];  // type, elements
  while (file.read(reinterpret_cast<char*>(header), sizeof header)) {
    DequantisedRow row;
    row.dtype = dtype_from_ggml(header[0]).value();
    row.bytes.resize(row_bytes(row.dtype, header[1]));
    row.values.resize(header[1]);
    file.read(row.bytes.data(), std::ssize(row.bytes));
    file.read(reinterpret_cast<char*>(row.values.data()), std::ssize(row.values) * sizeof(float));
    if (!file) break;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<cpu::Isa> isas() {
  std::vector<cpu::Isa> all;
  for (const cpu::Isa isa : {cpu::Isa::portable, cpu::Isa::avx2, cpu::Isa::avx512}) {
    if (isa <= cpu::detected_isa()) all.push_back(isa);
  }
  return all;
}

TEST(Dequantise, GivesTheValuesOfTheReferencePackageForEveryTypeAndInstructionSet) {
  const std::vector<DequantisedRow> rows = read_rows();
  ASSERT_EQ(rows.size(), all_dtypes().size());
  for (const DequantisedRow& row : rows) {
    for (const cpu::Isa isa : isas()) {
      std::vector<float> out(row.values.size(), std::nanf(""));
      cpu::dequantise_row(row.bytes.data(), row.dtype, std::ssize(out), isa, out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(out[i], row.values[i]) << name(row.dtype) << ' ' << cpu::name(isa) << " element " << i;
      }
    }
  }
}

TEST(Dequantise, WritesARowOfAnyLengthAndNothingBehindIt) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const cpu::Isa isa : isas()) {
      for (int64_t cols = 1; cols <= 35; ++cols) {
        const std::vector<char> bytes(row_bytes(dtype, cols),
                                      0x3c);  // exactly the row: a sanitizer sees reads beyond
        std::vector<float> out(cols + 1, -1.0f);
        cpu::dequantise_row(bytes.data(), dtype, cols, isa, out.data());
        EXPECT_GT(out[cols - 1], 0.0f);
        EXPECT_EQ(out[cols], -1.0f);
      }
    }
  }
}

TEST(Dequantise, WritesARowOfFp8OfAnyLengthAndNothingBehindIt) {
  for (const cpu::Isa isa : isas()) {
    for (const int64_t cols : {1, 15, 16, 47, 127, 128, 129, 255}) {
      const std::vector<uint8_t> bytes = test::random_weights(DType::fp8, 1, cols, 1);
      const reference::Matrix expected = reference::dequantise(bytes.data(), DType::fp8, 1, cols);
      std::vector<float> out(cols + 1, -1.0f);
      cpu::dequantise_row(bytes.data(), DType::fp8, cols, isa, out.data());
      for (int64_t i = 0; i < cols; ++i)
        ASSERT_EQ(out[i], expected.at(0, i)) << cpu::name(isa) << ' ' << i << " of " << cols;
      EXPECT_EQ(out[cols], -1.0f);
    }
  }
}

TEST(Dequantise, PowersOfTwoOfMxfp4GoToTheirEnds) {
  uint8_t block[17] = {0, 0x21};  // elements 0 and 16 are 0.5 and 1
  float out[32];
  for (const auto& [exponent, one] :
       {std::pair{0, 0x1p-127f}, {1, 0x1p-126f}, {127, 1.0f}, {254, 0x1p127f}}) {
    block[0] = static_cast<uint8_t>(exponent);
    cpu::dequantise_row(block, DType::mxfp4, 32, cpu::selected_isa(), out);
    EXPECT_EQ(out[0], one / 2);
    EXPECT_EQ(out[16], one);
    EXPECT_EQ(out[1], 0.0f);
  }
  block[0] = 255;
  cpu::dequantise_row(block, DType::mxfp4, 32, cpu::selected_isa(), out);
  for (const float value : out)
    EXPECT_TRUE(std::isnan(value));
}

TEST(Dequantise, RefusesAPieceOfABlock) {
  float out[32];
  const char block[18] = {};
  EXPECT_THROW(cpu::dequantise_row(block, DType::q4_0, 31, cpu::Isa::portable, out), Error);
}

}  // namespace
}  // namespace minfer
