#include <cstring>
#include <fstream>
#include <limits>

#include <gtest/gtest.h>

#include "tests/reference/dequantise.h"
#include "tests/support/cuda/device_data.h"
#include "tests/support/isa_scope.h"
#include "tests/support/models/fixtures.h"
#include "tests/support/paths.h"
#include "tests/support/random_data.h"

namespace minfer {
namespace {

using test::DeviceArray;
using test::GuardedTensor;

constexpr int64_t kRows = 11;
constexpr int64_t kHiddenSize = 512;
const std::vector<int32_t> kIds{3, 0, 10, 3, 7};

std::vector<float> embed(Backend& backend, DType dtype, const std::vector<uint8_t>& table) {
  const DeviceArray<int32_t> ids(backend, kIds);
  const Weight weight = backend.load({"table", table.data(), dtype, 1, kRows, kHiddenSize});
  const GuardedTensor out(backend, std::ssize(kIds), kHiddenSize);
  backend.embed(0, {.token_ids = ids.data(), .table = weight, .vocab_size = kRows, .out = out.tensor()});
  EXPECT_TRUE(out.intact());
  return out.values();
}

class EmbedTypes : public testing::TestWithParam<DType> {};

TEST_P(EmbedTypes, RowsAreTheTablesValues) {
  const std::vector<uint8_t> table = test::random_weights(GetParam(), kRows, kHiddenSize, 7);
  const reference::Matrix values = reference::dequantise(table.data(), GetParam(), kRows, kHiddenSize);
  std::vector<double> expected;
  for (const int32_t id : kIds) {
    for (int64_t i = 0; i < kHiddenSize; ++i)
      expected.push_back(values.at(id, i));
  }
  for (const std::string& isa : test::IsaScope::available()) {
    const test::IsaScope scope(isa);
    EXPECT_LT(test::nmse(embed(*make_cpu_backend(2), GetParam(), table), expected), 1e-13) << isa;
  }
}

std::string type_name(const testing::TestParamInfo<DType>& info) {
  return std::string(name(info.param));
}

INSTANTIATE_TEST_SUITE_P(All, EmbedTypes, testing::ValuesIn(test::every_dtype()), type_name);

TEST(Embed, RefusesIdsOutsideTheTable) {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> table(6, 1.0f);
  const Weight weight = backend->load({"table", table.data(), DType::f32, 1, 3, 2});
  const GuardedTensor out(*backend, 1, 2);
  for (const int32_t id : {-1, 3}) {
    const DeviceArray<int32_t> ids(*backend, std::vector<int32_t>{id});
    EXPECT_THROW(
        backend->embed(0, {.token_ids = ids.data(), .table = weight, .vocab_size = 3, .out = out.tensor()}),
        Error)
        << id;
  }
}

TEST(Embed, TokensOfOtherRanksAreZeros) {
  const auto backend = make_cpu_backend(1);
  const std::vector<float> share{1.0f, 2.0f, 3.0f, 4.0f};  // tokens 2 and 3 of six
  const Weight weight = backend->load({.name = "table", .data = share.data(), .rows = 2, .cols = 2});
  const DeviceArray<int32_t> ids(*backend, std::vector<int32_t>{3, 1, 2, 4});
  const GuardedTensor out(*backend, 4, 2);
  backend->embed(
      0, {.token_ids = ids.data(), .table = weight, .first_token = 2, .vocab_size = 6, .out = out.tensor()});
  EXPECT_EQ(out.values(), (std::vector<float>{3, 4, 0, 0, 1, 2, 0, 0}));
}

TEST(SpreadColumns, AreThoseOfTheirTokens) {
  const auto backend = make_cpu_backend(2);
  const std::vector<float> columns{2, -1, 0, 1, -1};
  const Weight weight = backend->load({.name = "columns", .data = columns.data(), .cols = 5});
  const std::vector<float> values{1, 2, 3, 4, 5, 6};
  const GuardedTensor x(*backend, 2, 3, values), out(*backend, 2, 5);
  backend->spread_columns(0, {.x = x.tensor(), .columns = weight, .out = out.tensor()});
  EXPECT_TRUE(out.intact());
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(out.values(), (std::vector<float>{3, kNone, 1, 2, kNone, 6, kNone, 4, 5, kNone}));
  const GuardedTensor narrow(*backend, 2, 4);
  EXPECT_THROW(backend->spread_columns(0, {.x = x.tensor(), .columns = weight, .out = narrow.tensor()}),
               Error);
}

TEST(Gather, CopiesTheNamedRows) {
  const auto backend = make_cpu_backend(2);
  const std::vector<float> values = test::normal_values(7 * 33, 1);
  const GuardedTensor x(*backend, 7, 33, values);
  const std::vector<int32_t> rows{6, 0, 3, 3};
  const DeviceArray<int32_t> device_rows(*backend, rows);
  const GuardedTensor out(*backend, std::ssize(rows), 33);
  backend->gather_rows(0, x.tensor(), device_rows.data(), out.tensor());
  std::vector<float> expected;
  for (const int32_t row : rows)
    expected.insert(expected.end(), values.begin() + row * 33, values.begin() + (row + 1) * 33);
  EXPECT_EQ(out.values(), expected);
  EXPECT_TRUE(out.intact());
}

/// Compares the reference itself with values from the `gguf` Python package (make_dequantised_rows.py).
TEST(Reference, DequantisesAsTheGgufPackage) {
  std::ifstream file(source_path("tests/kernels/data/dequantised_rows.bin"), std::ios::binary);
  uint32_t header[2];  // type, elements
  int types = 0;
  for (; file.read(reinterpret_cast<char*>(header), sizeof header); ++types) {
    const DType dtype = dtype_from_ggml(header[0]).value();
    std::vector<char> bytes(row_bytes(dtype, header[1]));
    std::vector<float> values(header[1]);
    file.read(bytes.data(), std::ssize(bytes));
    file.read(reinterpret_cast<char*>(values.data()), std::ssize(values) * 4);
    const reference::Matrix row = reference::dequantise(bytes.data(), dtype, 1, header[1]);
    EXPECT_LT(test::nmse(values, row.data), 1e-13) << name(dtype);
  }
  EXPECT_GE(types, 12);
}

}  // namespace
}  // namespace minfer
