#include "kernels/cuda/comm/all_reduce_path.h"

#include <gtest/gtest.h>

namespace minfer {
namespace {

using cuda::all_reduce_path;
using cuda::AllReduceCrossover;
using cuda::AllReducePath;
using cuda::AllReduceTable;
using cuda::crossover_of;
using cuda::default_crossover;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(AllReducePath, SmallPartsGoByLinesLargeOnesByChunks) {
  const AllReduceCrossover crossover = default_crossover(2);
  for (const AllReduceChoice choice : {AllReduceChoice::automatic, AllReduceChoice::peer}) {
    EXPECT_EQ(all_reduce_path(1, 4096, 2, 2, choice, crossover), AllReducePath::lines);
    EXPECT_EQ(all_reduce_path(32, 4096, 2, 2, choice, crossover), AllReducePath::lines);
    EXPECT_EQ(all_reduce_path(33, 4096, 2, 2, choice, crossover), AllReducePath::chunks);
    EXPECT_EQ(all_reduce_path(8192, 4096, 2, 2, choice, crossover), AllReducePath::chunks);
  }
}

TEST(AllReducePath, MoreThanTwoRanksTakeTwoShots) {
  const AllReduceCrossover crossover = default_crossover(8);
  EXPECT_LT(crossover.lines_up_to, default_crossover(2).lines_up_to);
  EXPECT_EQ(all_reduce_path(1, 8192, 2, 8, AllReduceChoice::peer, crossover), AllReducePath::lines);
  EXPECT_EQ(all_reduce_path(2048, 8192, 2, 8, AllReduceChoice::peer, crossover), AllReducePath::two_shot);
}

TEST(AllReducePath, NcclIsTakenWhenForcedOrFasterButNotWherePeersAreForced) {
  const AllReduceCrossover crossover{.lines_up_to = 0, .nccl_from = 4 * kMiB};
  EXPECT_EQ(all_reduce_path(1, 64, 4, 2, AllReduceChoice::nccl, crossover), AllReducePath::nccl);
  EXPECT_EQ(all_reduce_path(512, 4096, 2, 2, AllReduceChoice::automatic, crossover), AllReducePath::nccl);
  EXPECT_EQ(all_reduce_path(511, 4096, 2, 2, AllReduceChoice::automatic, crossover), AllReducePath::chunks);
  EXPECT_EQ(all_reduce_path(512, 4096, 2, 2, AllReduceChoice::peer, crossover), AllReducePath::chunks);
}

TEST(AllReducePath, LinesAreTakenOnlyWherePaddedRowsFit) {
  const AllReduceCrossover crossover{.lines_up_to = 64 * kMiB};
  EXPECT_EQ(all_reduce_path(64, 4096, 2, 2, AllReduceChoice::peer, crossover), AllReducePath::lines);
  EXPECT_EQ(all_reduce_path(65, 4096, 2, 2, AllReduceChoice::peer, crossover), AllReducePath::chunks);
  // One column takes the space of eight.
  EXPECT_EQ(all_reduce_path(32 * 1024, 1, 2, 2, AllReduceChoice::peer, crossover), AllReducePath::lines);
  EXPECT_EQ(all_reduce_path(32 * 1024 + 1, 1, 2, 2, AllReduceChoice::peer, crossover), AllReducePath::chunks);
}

AllReduceTable table_of(std::initializer_list<AllReduceTable::Size> sizes) {
  AllReduceTable table;
  for (const AllReduceTable::Size& size : sizes)
    table.sizes[static_cast<size_t>(table.count++)] = size;
  return table;
}

TEST(AllReducePath, ACrossoverIsWhereOnePathStaysFaster) {
  const AllReduceCrossover crossover = crossover_of(table_of({{8192, 5.0f, 6.0f, 12.0f},
                                                              {32768, 6.0f, 6.5f, 12.0f},
                                                              {131072, 9.0f, 7.0f, 12.0f},
                                                              {524288, 12.0f, 13.0f, 11.0f},
                                                              {2097152, 0.0f, 20.0f, 25.0f},
                                                              {8388608, 0.0f, 50.0f, 45.0f},
                                                              {33554432, 0.0f, 190.0f, 150.0f}}));
  EXPECT_EQ(crossover.lines_up_to, 32768);
  EXPECT_EQ(crossover.nccl_from, 8388608);
}

TEST(AllReducePath, ATableOfOnePathLeavesTheOthersOut) {
  const AllReduceCrossover slow_lines = crossover_of(table_of({{8192, 7.0f, 6.0f, 12.0f}}));
  EXPECT_EQ(slow_lines.lines_up_to, 0);
  EXPECT_EQ(slow_lines.nccl_from, AllReduceCrossover{}.nccl_from);
  EXPECT_EQ(crossover_of(table_of({{8192, 7.0f, 6.0f, 5.0f}})).nccl_from, 8192);
}

}  // namespace
}  // namespace minfer
