#include "tests/support/bench/product_shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/error.h"

namespace minfer::test {
namespace {

using testing::HasSubstr;

TEST(ProductShapes, OfALayerHaveItsParameters) {
  int64_t parameters = 0;
  for (const ProductShape& shape : product_shapes("llama-3.1-8b"))
    parameters += shape.rows * shape.cols * (shape.gate_up ? 2 : 1);
  EXPECT_EQ(parameters * 32, 6'979'321'856);  // 7.505 B of a token, minus the head's 525 M
}

TEST(ProductShapes, UnknownOnesListTheKnown) {
  try {
    product_shapes("llama-9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("llama-3.1-8b, square"));
  }
}

TEST(ProductShapes, WorkCountsEveryByteOnce) {
  const ProductShape gate_up{
      .name = "", .rows = 10, .cols = 16, .gate_up = true, .out_is_f32 = false, .adds = false};
  const ProductWork two = work_of(gate_up, 320, 3);
  EXPECT_EQ(two.weight_bytes, 640);
  EXPECT_EQ(two.bytes, 640 + 3 * 16 * 2 + 3 * 10 * 2);
  EXPECT_EQ(two.flops, 2 * 2 * 3 * 10 * 16);
  const ProductShape down{
      .name = "", .rows = 10, .cols = 16, .gate_up = false, .out_is_f32 = true, .adds = true};
  const ProductWork one = work_of(down, 90, 3);
  EXPECT_EQ(one.bytes, 90 + 3 * 16 * 2 + 2 * 3 * 10 * 4);
  EXPECT_EQ(one.flops, 2 * 3 * 10 * 16);
}

TEST(ProductShapes, CopiesAreMoreThanTheCacheHolds) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(cold_copies(32 * kMiB, 50 * kMiB), 7);
  EXPECT_EQ(cold_copies(235 * kMiB, 50 * kMiB), 2);
  EXPECT_EQ(cold_copies(kMiB, 50 * kMiB), 200);
}

TEST(ProductShapes, EveryCopyIsCalledAsOften) {
  EXPECT_EQ(calls_in_a_row(10.0, 7), 70);
  EXPECT_EQ(calls_in_a_row(52.0, 2), 58);
  EXPECT_EQ(calls_in_a_row(1320.0, 2), 8);
  EXPECT_EQ(calls_in_a_row(1.0, 200), 200);
}

TEST(ProductShapes, SpreadIsOfAllValues) {
  const Spread odd = spread_of({5.0, 1.0, 3.0});
  EXPECT_EQ(odd.lowest, 1.0);
  EXPECT_EQ(odd.median, 3.0);
  EXPECT_EQ(odd.highest, 5.0);
  EXPECT_EQ(spread_of({4.0, 1.0}).median, 2.5);
  EXPECT_THROW(spread_of({}), Error);
}

}  // namespace
}  // namespace minfer::test
