#include "kernels/cuda/product/stream_plan.h"

#include <gtest/gtest.h>

namespace minfer::cuda {
namespace {

constexpr int32_t kNumSms = 132;

int64_t tiles_of(const StreamPlan& plan, int64_t weight_rows) {
  const int64_t rows = int64_t{plan.warpgroups} * kWarpgroupRows;
  return (weight_rows + rows - 1) / rows;
}

TEST(StreamPlan, EveryTileHasItsBlocks) {
  for (const bool gate_up : {false, true}) {
    for (int64_t rows = 8; rows < 40000; rows += rows < 600 ? 8 : 1288) {
      for (const int64_t cols : {8, 64, 200, 4096, 14336}) {
        for (int64_t tokens = 1; tokens <= 128; ++tokens) {
          const StreamPlan plan = stream_plan(rows, cols, tokens, gate_up, kNumSms);
          EXPECT_GE(plan.token_tile, tokens);
          EXPECT_TRUE(plan.token_tile == 8 || plan.token_tile < 2 * tokens);
          const int64_t tiles = tiles_of(plan, gate_up ? 2 * rows : rows);
          // All blocks fit on the multiprocessors at a time, and each has something to do.
          EXPECT_LE(plan.blocks, kNumSms);
          EXPECT_LE(plan.splits, std::max<int64_t>(1, (cols + kStageColumns - 1) / kStageColumns));
          if (plan.splits > 1) {
            EXPECT_EQ(plan.blocks, tiles * plan.splits);
            EXPECT_EQ(plan.pair, 1);
          } else {
            // A block's, or a pair's, share of the line is a tile at least, so two at most share one.
            EXPECT_EQ(plan.blocks % plan.pair, 0);
            EXPECT_EQ(plan.blocks / plan.pair,
                      std::min<int64_t>((tiles + plan.pair - 1) / plan.pair, kNumSms / plan.pair));
          }
          if (gate_up) {
            EXPECT_EQ(plan.warpgroups, 2);
          }
        }
      }
    }
  }
}

TEST(StreamPlan, FillsTheMultiprocessorsWithTheShapesOf8B) {
  const auto blocks = [](int64_t rows, int64_t cols, int64_t tokens, bool gate_up = false) {
    return stream_plan(rows, cols, tokens, gate_up, kNumSms).blocks;
  };
  for (const int64_t tokens : {1, 16, 64, 128}) {
    EXPECT_EQ(blocks(6144, 4096, tokens), 96) << tokens;
    EXPECT_EQ(blocks(4096, 4096, tokens), 128) << tokens;
    EXPECT_EQ(blocks(14336, 4096, tokens, true), 132) << tokens;
    EXPECT_EQ(blocks(4096, 14336, tokens), 128) << tokens;
    EXPECT_EQ(blocks(128256, 4096, tokens), 132) << tokens;
  }
}

}  // namespace
}  // namespace minfer::cuda
