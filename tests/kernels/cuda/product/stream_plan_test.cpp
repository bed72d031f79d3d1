#include "kernels/cuda/choice/stream_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace minfer::cuda {
namespace {

constexpr int32_t kPlannedSms = 132;

int64_t tiles_of(const StreamPlan& plan, int64_t weight_rows) {
  const int64_t rows = int64_t{plan.warpgroups} * kWarpgroupRows;
  return (weight_rows + rows - 1) / rows;
}

TEST(StreamPlan, EveryTileHasItsBlocks) {
  for (const bool gate_up : {false, true}) {
    for (int64_t rows = 8; rows < 40000; rows += rows < 600 ? 8 : 1288) {
      for (const int64_t cols : {8, 64, 200, 4096, 14336}) {
        for (int64_t tokens = 1; tokens <= 1100; tokens += tokens < 130 ? 1 : 97) {
          const StreamPlan plan = stream_plan(rows, cols, tokens, gate_up, kPlannedSms);
          EXPECT_GE(plan.token_tile, std::min<int64_t>(tokens, 192));
          EXPECT_LE(plan.token_tile, kMostTokensOfTile);
          EXPECT_TRUE(plan.token_tile == 8 || plan.token_tile < 2 * tokens);
          const int64_t tiles = tiles_of(plan, gate_up ? 2 * rows : rows);
          const int64_t token_blocks = (tokens + plan.token_tile - 1) / plan.token_tile;
          // All blocks fit on the multiprocessors at once, and each has work.
          EXPECT_LE(plan.blocks, kPlannedSms);
          EXPECT_LE(plan.splits, std::max<int64_t>(1, (cols + kStageColumns - 1) / kStageColumns));
          if (plan.splits > 1) {
            EXPECT_EQ(plan.blocks, tiles * plan.splits);
            EXPECT_EQ(token_blocks, 1);
          } else if (plan.by_rounds) {
            // The fewest blocks that divide the tiles as evenly as all of them would.
            EXPECT_EQ((tiles * token_blocks + plan.blocks - 1) / plan.blocks,
                      (tiles * token_blocks + kPlannedSms - 1) / kPlannedSms);
          } else {
            // A block's share of the line is at least a tile, so at most two blocks share one.
            EXPECT_EQ(plan.blocks, std::min<int64_t>(tiles * token_blocks, kPlannedSms));
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
    return stream_plan(rows, cols, tokens, gate_up, kPlannedSms).blocks;
  };
  for (const int64_t tokens : {1, 16, 64, 128}) {
    EXPECT_EQ(blocks(6144, 4096, tokens), 96) << tokens;
    EXPECT_EQ(blocks(4096, 4096, tokens), 128) << tokens;
    EXPECT_EQ(blocks(14336, 4096, tokens, true), 132) << tokens;
    EXPECT_EQ(blocks(4096, 14336, tokens), 128) << tokens;
    EXPECT_EQ(blocks(128256, 4096, tokens), 132) << tokens;
  }
}

TEST(StreamPlan, ManyTokensTakeTheTilesThatFillTheMultiprocessors) {
  const auto tile = [](int64_t rows, int64_t tokens) {
    return stream_plan(rows, 4096, tokens, true, kPlannedSms).token_tile;
  };
  EXPECT_EQ(tile(14336, 129), 192);
  EXPECT_EQ(tile(14336, 192), 192);
  EXPECT_EQ(tile(14336, 193), 256) << "one tile of all tokens, not two";
  EXPECT_EQ(tile(14336, 257), 192) << "four rounds either way";
  EXPECT_EQ(tile(14336, 512), 256) << "four rounds, not six";
  EXPECT_EQ(tile(8192, 528), 192) << "three rounds either way";
  EXPECT_EQ(tile(14336, 2048), 256);
}

TEST(TileStreamPlan, EveryTileHasItsBlocks) {
  for (const bool gate_up : {false, true}) {
    for (int64_t rows = 4; rows < 40000; rows += rows < 600 ? 4 : 1288) {
      for (const int64_t cols : {64, 256, 1024, 4096, 14336}) {
        for (int64_t tokens = 1; tokens <= 2048; tokens += tokens < 130 ? 1 : 97) {
          const StreamPlan plan = tile_stream_plan(rows, cols, tokens, gate_up, kPlannedSms);
          EXPECT_GE(plan.token_tile, std::min<int64_t>(tokens, kMostTokensOfCluster));
          EXPECT_LE(plan.token_tile, kMostTokensOfTile);
          if (plan.token_tile > kMostTokensOfCluster) {
            EXPECT_EQ(plan.warpgroups, 2) << "the kernel has no other";
            EXPECT_EQ(plan.splits, 1);
            EXPECT_GT(tokens, kMostTokensOfCluster);
          }
          const int64_t tiles = tiles_of(plan, gate_up ? 2 * rows : rows);
          EXPECT_GE(plan.blocks, 1);
          EXPECT_LE(plan.blocks, kPlannedSms);
          EXPECT_LE(plan.splits, std::max<int64_t>(1, (cols + 255) / 256));
          if (plan.splits > 1) {
            EXPECT_EQ(plan.blocks, tiles * plan.splits);
          }
          EXPECT_EQ(plan.by_rounds, tokens > plan.token_tile);
        }
      }
    }
  }
}

TEST(TileStreamPlan, ManyTokensTakeTheTilesThatFillTheMultiprocessors) {
  const auto tile = [](int64_t rows, int64_t cols, int64_t tokens, bool gate_up = false) {
    const StreamPlan plan = tile_stream_plan(rows, cols, tokens, gate_up, kPlannedSms);
    return fmt::format("{}x{}", plan.token_tile, plan.warpgroups * kWarpgroupRows);
  };
  EXPECT_EQ(tile(6144, 4096, 2048), "256x128");
  EXPECT_EQ(tile(6144, 4096, 1024), "128x128") << "three rounds of half a tile, not two of a whole one";
  EXPECT_EQ(tile(4096, 14336, 2048), "256x128");
  EXPECT_EQ(tile(14336, 4096, 2048, true), "256x128");
  EXPECT_EQ(tile(14336, 4096, 256, true), "256x128") << "a line of 224 tiles";
  EXPECT_EQ(tile(4096, 14336, 256), "128x64") << "128 tiles, 32 of the largest";
  EXPECT_EQ(tile(4096, 4096, 512), "128x128") << "128 tiles, 64 of the largest";
  EXPECT_EQ(tile(1024, 4096, 2048), "128x128") << "values of grouped queries: 128 tiles, 64 of the largest";
}

TEST(Fp8StreamPlan, EveryTileHasItsBlocks) {
  for (const bool gate_up : {false, true}) {
    for (int64_t rows = 128; rows < 40000; rows += rows < 600 ? 128 : 1280) {
      for (const int64_t cols : {128, 1024, 4096, 14336}) {
        for (int64_t tokens = 1; tokens <= 2048; tokens += tokens < 130 ? 1 : 97) {
          const StreamPlan plan = fp8_stream_plan(rows, cols, tokens, gate_up, kPlannedSms);
          EXPECT_GE(plan.token_tile, std::min<int64_t>(tokens, 128));
          EXPECT_LE(plan.token_tile, 128);
          EXPECT_EQ(plan.by_rounds, tokens > 128);
          EXPECT_GE(plan.blocks, 1);
          EXPECT_LE(plan.blocks, kPlannedSms);
          EXPECT_LE(plan.splits, std::max<int64_t>(1, cols / 128));
          if (plan.splits > 1) {
            EXPECT_EQ(plan.blocks, tiles_of(plan, gate_up ? 2 * rows : rows) * plan.splits);
          }
          if (gate_up) {
            EXPECT_EQ(plan.warpgroups, 4) << "128 columns of the output";
          } else if (plan.warpgroups == 4) {
            EXPECT_TRUE(plan.by_rounds) << "the kernel has tiles of 128 tokens";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace minfer::cuda
