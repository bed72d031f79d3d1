// What a file may cost: memory and time stay in proportion to its size.
#include <ctime>

#include <gtest/gtest.h>

#include "models/gguf/gguf.h"
#include "tests/support/allocations.h"
#include "tests/support/models/gguf_builder.h"

namespace minfer {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

class GgufLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::kCountsAllocations) GTEST_SKIP() << "allocations are not counted in this build";
  }
};

/// The most bytes that `action` held at once, beyond those allocated before, and its number of
/// allocations.
struct Cost {
  size_t peak_bytes = 0;
  uint64_t allocations = 0;
};
template <class Action>
Cost cost_of(const Action& action) {
  const uint64_t before = test::thread_allocations();
  test::reset_thread_peak();
  action();
  return {test::thread_peak_bytes(), test::thread_allocations() - before};
}

std::vector<std::byte> file_with_keys(size_t count) {
  test::GgufBuilder builder;
  for (size_t i = 0; i < count; ++i)
    builder.add(fmt::format("key.{}", i), static_cast<uint32_t>(i));
  return builder.build();
}

TEST_F(GgufLimits, HundredThousandKeysAreRead) {
  const auto bytes = file_with_keys(100000);
  const std::clock_t start = std::clock();
  const Cost cost = cost_of([&] {
    const GgufFile file = GgufFile::from_memory(bytes, "keys");
    for (const uint32_t i : {0U, 31337U, 99999U})
      EXPECT_EQ(file.get_int(fmt::format("key.{}", i)), i);
  });
  // Comparing every key with every other would be 5e9 comparisons, over 5 s on any machine.
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);
  EXPECT_LT(cost.allocations, 50U) << "a number of allocations that does not grow with the keys";
}

TEST_F(GgufLimits, MostKeysStayInBounds) {
  const auto bytes = file_with_keys(size_t{1} << 17);
  const Cost cost = cost_of([&] { GgufFile::from_memory(bytes, "keys"); });
  EXPECT_GT(cost.peak_bytes, kMiB);  // the counter works
  EXPECT_LT(cost.peak_bytes, 16 * kMiB);
  const auto more = file_with_keys((size_t{1} << 17) + 1);
  EXPECT_THROW(GgufFile::from_memory(more, "keys"), FileError);
}

TEST_F(GgufLimits, MostTensorsStayInBounds) {
  test::GgufBuilder builder;
  builder.add("general.alignment", uint32_t{8});
  builder.with_alignment = 8;
  for (size_t i = 0; i < size_t{1} << 17; ++i)
    builder.tensor(fmt::format("{:064}", i), DType::f32, {2});
  const auto bytes = builder.build();
  EXPECT_LT(cost_of([&] { GgufFile::from_memory(bytes, "tensors"); }).peak_bytes, 64 * kMiB);
  builder.tensor("one.more", DType::f32, {2});
  const auto more = builder.build();
  EXPECT_THROW(GgufFile::from_memory(more, "tensors"), FileError);
}

TEST_F(GgufLimits, LongestArrayStaysInBounds) {
  test::GgufBuilder builder;
  builder.add("strings", std::vector<std::string>(size_t{1} << 21));
  const auto bytes = builder.build();
  const Cost cost = cost_of([&] {
    EXPECT_EQ(GgufFile::from_memory(bytes, "array").get_strings("strings").size(), size_t{1} << 21);
  });
  EXPECT_LT(cost.peak_bytes, 33 * kMiB);
  test::GgufBuilder longer;
  longer.add("bytes", std::vector<uint8_t>((size_t{1} << 21) + 1));
  const auto more = longer.build();
  EXPECT_THROW(GgufFile::from_memory(more, "array"), FileError);
}

TEST_F(GgufLimits, StatedCountsAllocateNothing) {
  test::GgufBuilder builder;
  builder.with_num_keys = size_t{1} << 17;
  builder.with_num_tensors = size_t{1} << 17;
  const auto bytes = builder.build();
  const Cost cost = cost_of([&] { EXPECT_THROW(GgufFile::from_memory(bytes, "counts"), FileError); });
  EXPECT_LT(cost.peak_bytes, 64 * 1024U);
}

}  // namespace
}  // namespace minfer
