#include "kernels/occupancy.h"

#include <thread>

#include <gtest/gtest.h>

namespace minfer {
namespace {

/// An H200's, from its data sheet.
constexpr SmLimits kH200{.multiprocessors = 132,
                         .registers = 65'536,
                         .shared_bytes = 233'472,
                         .reserved_shared_bytes = 1024,
                         .threads = 2048,
                         .blocks = 32};

KernelLaunch launched(int32_t blocks, int32_t threads, int32_t registers, int32_t shared_bytes) {
  KernelLaunch launch;
  launch.grid = {blocks, 1, 1};
  launch.block = {threads, 1, 1};
  launch.registers = registers;
  launch.dynamic_shared_bytes = shared_bytes;
  set_occupancy(launch, kH200);
  return launch;
}

TEST(Occupancy, RegistersLimit) {
  const KernelLaunch launch = launched(264, 256, 128, 0);  // 4,096 registers a warp: 16 warps
  EXPECT_EQ(launch.blocks_per_sm, 2);
  EXPECT_EQ(launch.limiter, OccupancyLimiter::registers);
  EXPECT_DOUBLE_EQ(launch.occupancy, 0.25);
  EXPECT_DOUBLE_EQ(launch.waves, 1.0);
}

TEST(Occupancy, RegistersComeInUnits) {
  EXPECT_EQ(launched(1, 32, 33, 0).blocks_per_sm,
            32);  // 40 a thread: 51 warps, rounded to 48; the limit of blocks is below
  EXPECT_EQ(launched(1, 128, 33, 0).blocks_per_sm, 12);  // 48 warps
  EXPECT_EQ(launched(1, 128, 40, 0).blocks_per_sm, 12);
  EXPECT_EQ(launched(1, 128, 41, 0).blocks_per_sm, 10);  // 48 a thread: 42 warps, rounded to 40
}

TEST(Occupancy, SharedMemoryLimitsWithWhatIsReserved) {
  const KernelLaunch launch = launched(132, 128, 32, 113 << 10);
  EXPECT_EQ(launch.blocks_per_sm, 2);  // 2 x (113 + 1) KiB are all of 228
  EXPECT_EQ(launch.limiter, OccupancyLimiter::shared_memory);
  EXPECT_DOUBLE_EQ(launch.waves, 0.5);
  EXPECT_EQ(launched(132, 128, 32, (113 << 10) + 1).blocks_per_sm, 1);
}

TEST(Occupancy, ThreadsAndBlocksLimit) {
  EXPECT_EQ(launched(1, 1024, 16, 0).limiter, OccupancyLimiter::threads);
  EXPECT_DOUBLE_EQ(launched(1, 1024, 16, 0).occupancy, 1.0);
  EXPECT_EQ(launched(1, 33, 16, 0).limiter,
            OccupancyLimiter::threads);  // two warps: both limits are 32 blocks
  EXPECT_EQ(launched(1, 33, 16, 0).blocks_per_sm, 32);
  EXPECT_EQ(launched(1, 32, 16, 0).blocks_per_sm, 32);
  EXPECT_EQ(launched(1, 32, 16, 0).limiter, OccupancyLimiter::blocks);
}

TEST(Occupancy, WithoutADeviceNothingIsKnown) {
  KernelLaunch launch;
  launch.block = {128, 1, 1};
  set_occupancy(launch, {});
  EXPECT_EQ(launch.blocks_per_sm, 0);
  EXPECT_EQ(launch.limiter, OccupancyLimiter::unknown);
}

TEST(LaunchTable, GrowsToItsLimitAndIsReadMeanwhile) {
  LaunchTable table;
  std::jthread reader([&](const std::stop_token& stop) {
    int32_t seen = 0;
    while (!stop.stop_requested() || seen < table.size()) {
      for (const KernelLaunch& launch : table.from(seen))
        ASSERT_EQ(launch.registers, seen++);
    }
  });
  for (int32_t i = 0; i < LaunchTable::kMost; ++i) {
    KernelLaunch launch;
    launch.registers = i;
    ASSERT_EQ(table.add(launch), i);
  }
  EXPECT_EQ(table.add({}), -1);
  EXPECT_EQ(table.size(), LaunchTable::kMost);
  EXPECT_TRUE(table.from(LaunchTable::kMost).empty());
  EXPECT_TRUE(table.from(-1).empty());
}

}  // namespace
}  // namespace minfer
