// What a file may cost: memory and time stay in proportion to its bytes. Counts every allocation of the
// process.
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <new>

#include <gtest/gtest.h>
#include <malloc.h>

#include "models/checked.h"
#include "models/gguf.h"
#include "tests/support/gguf_builder.h"

namespace {

std::atomic<size_t> allocated_bytes = 0;
std::atomic<size_t> peak_bytes = 0;
std::atomic<size_t> allocations = 0;

}  // namespace

void* operator new(size_t size) {
  void* memory = std::malloc(size);
  if (memory == nullptr) throw std::bad_alloc();
  const size_t now = allocated_bytes += malloc_usable_size(memory);
  size_t peak = peak_bytes;
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  ++allocations;
  return memory;
}
void operator delete(void* memory) noexcept {
  allocated_bytes -= malloc_usable_size(memory);
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  operator delete(memory);
}

namespace minfer {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// The most that was allocated at once, and how often, while `action` ran, beyond what was there before.
struct Cost {
  size_t peak = 0;
  size_t allocations = 0;
};
template <class Action>
Cost cost_of(const Action& action) {
  const size_t before = allocated_bytes;
  const size_t count_before = allocations;
  peak_bytes = before;
  action();
  return {peak_bytes - before, allocations - count_before};
}

std::vector<std::byte> file_with_keys(size_t count) {
  test::GgufBuilder builder;
  for (size_t i = 0; i < count; ++i)
    builder.add(fmt::format("key.{}", i), static_cast<uint32_t>(i));
  return builder.build();
}

TEST(GgufLimits, HundredThousandKeysAreRead) {
  const auto bytes = file_with_keys(100000);
  const std::clock_t start = std::clock();
  const Cost cost = cost_of([&] {
    const GgufFile file = GgufFile::from_memory(bytes, "keys");
    for (const uint32_t i : {0U, 31337U, 99999U})
      EXPECT_EQ(file.get_int(fmt::format("key.{}", i)), i);
  });
  // Comparing every key with every other one would be 5e9 comparisons, over 5 s on any machine.
  EXPECT_LT(std::clock() - start, 2 * CLOCKS_PER_SEC);
  EXPECT_LT(cost.allocations, 50U) << "a number of allocations that does not grow with the keys";
}

TEST(GgufLimits, MostKeysStayInBounds) {
  const auto bytes = file_with_keys(size_t{1} << 17);
  const Cost cost = cost_of([&] { GgufFile::from_memory(bytes, "keys"); });
  EXPECT_GT(cost.peak, kMiB);  // the counter works
  EXPECT_LT(cost.peak, 16 * kMiB);
  const auto more = file_with_keys((size_t{1} << 17) + 1);
  EXPECT_THROW(GgufFile::from_memory(more, "keys"), FileError);
}

TEST(GgufLimits, MostTensorsStayInBounds) {
  test::GgufBuilder builder;
  builder.add("general.alignment", uint32_t{8});
  builder.with_alignment = 8;
  for (size_t i = 0; i < size_t{1} << 17; ++i)
    builder.tensor(fmt::format("{:064}", i), DType::f32, {2});
  const auto bytes = builder.build();
  EXPECT_LT(cost_of([&] { GgufFile::from_memory(bytes, "tensors"); }).peak, 64 * kMiB);
  builder.tensor("one.more", DType::f32, {2});
  const auto more = builder.build();
  EXPECT_THROW(GgufFile::from_memory(more, "tensors"), FileError);
}

TEST(GgufLimits, LongestArrayStaysInBounds) {
  test::GgufBuilder builder;
  builder.add("strings", std::vector<std::string>(size_t{1} << 21));
  const auto bytes = builder.build();
  const Cost cost = cost_of([&] {
    EXPECT_EQ(GgufFile::from_memory(bytes, "array").get_strings("strings").size(), size_t{1} << 21);
  });
  EXPECT_LT(cost.peak, 33 * kMiB);
  test::GgufBuilder longer;
  longer.add("bytes", std::vector<uint8_t>((size_t{1} << 21) + 1));
  const auto more = longer.build();
  EXPECT_THROW(GgufFile::from_memory(more, "array"), FileError);
}

TEST(GgufLimits, StatedCountsAllocateNothing) {
  test::GgufBuilder builder;
  builder.with_num_keys = size_t{1} << 17;
  builder.with_num_tensors = size_t{1} << 17;
  const auto bytes = builder.build();
  const Cost cost = cost_of([&] { EXPECT_THROW(GgufFile::from_memory(bytes, "counts"), FileError); });
  EXPECT_LT(cost.peak, 64 * 1024U);
}

TEST(Checked, ArithmeticStopsAtTheLimit) {
  constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();
  EXPECT_EQ(checked_add(kMax - 1, 1), kMax);
  EXPECT_EQ(checked_add(kMax, 1), std::nullopt);
  EXPECT_EQ(checked_mul(kMax / 3, 3), kMax);
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32), std::nullopt);
  EXPECT_EQ(checked_align(0, 32), 0U);
  EXPECT_EQ(checked_align(1, 32), 32U);
  EXPECT_EQ(checked_align(32, 32), 32U);
  EXPECT_EQ(checked_align(kMax - 30, 32), std::nullopt);
}

}  // namespace
}  // namespace minfer
