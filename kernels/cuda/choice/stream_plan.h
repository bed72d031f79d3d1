#pragma once

#include <algorithm>
#include <cstdint>

namespace minfer::cuda {

/// Divides a product of a stream kernel over thread blocks, by tiles of rows. A tile has all tokens or, if they
/// are too many, 128, 192 or 256 of them. There are three forms: a cluster of blocks divides the columns of a tile
/// (splits above 1); the columns of all tiles form one line that is divided evenly; or blocks take whole tiles
/// in turn.
struct StreamPlan {
  int32_t token_tile = 8;  ///< 8, 16, 32, 64, 128, 192 or 256
  int32_t warpgroups = 1;  ///< that multiply, 64 rows of weights each
  int32_t splits = 1;      ///< blocks that divide a tile's columns
  bool by_rounds = false;  ///< whole tiles in turn
  int32_t blocks = 1;

  /// Tiles with all tokens. Up to `most_splits` blocks may divide the columns of a tile.
  constexpr void take_tiles(int64_t tiles, int64_t most_splits, int32_t num_sms) {
    // Clusters of more than two leave multiprocessors idle if a group's number of them is not a multiple of the cluster's size.
    const int64_t in_pairs = std::min<int64_t>(num_sms / tiles, 2);
    const int64_t in_more = std::min<int64_t>(num_sms * 3 / 4 / tiles, 4);
    splits = static_cast<int32_t>(std::max<int64_t>(1, std::min(std::max(in_pairs, in_more), most_splits)));
    blocks = static_cast<int32_t>(splits > 1 ? tiles * splits : std::min<int64_t>(tiles, num_sms));
  }
  /// Tiles that each have some of the tokens.
  constexpr void take_rounds(int64_t tiles, int32_t num_sms) {
    const int64_t rounds = (tiles + num_sms - 1) / num_sms;
    by_rounds = true;
    blocks = static_cast<int32_t>((tiles + rounds - 1) / rounds);
  }
};

inline constexpr int32_t kStageColumns = 64;   ///< columns (K) that are multiplied at a time
inline constexpr int32_t kWarpgroupRows = 64;  ///< rows of weights
inline constexpr int32_t kMostTokensOfTile = 256;
inline constexpr int32_t kMostTokensOfCluster = 128;  ///< in a tile whose columns a cluster divides
/// The most tokens of a launch: with more, they and their weights do not stay in the L2 together.
inline constexpr int64_t kMostStreamedTokens = 2048;

/// Tiles of rows of a product, with `warpgroups` warpgroups each.
constexpr int64_t row_tiles(int64_t rows, bool gate_up, int64_t warpgroups) {
  const int64_t tile_rows = warpgroups * kWarpgroupRows;
  return ((gate_up ? 2 * rows : rows) + tile_rows - 1) / tile_rows;
}
/// The smallest tile that has all tokens, or `most` of them.
constexpr int32_t smallest_token_tile(int64_t tokens, int64_t most) {
  int32_t tile = 8;
  while (tile < std::min(tokens, most))
    tile *= 2;
  return tile;
}

/// `rows`: of the output; with gate_up, of gate and of up each. `tokens`: at most kMostStreamedTokens. The plan
/// follows measurements on an H200 and suits its number of multiprocessors.
inline StreamPlan stream_plan(int64_t rows, int64_t cols, int64_t tokens, bool gate_up, int32_t num_sms) {
  StreamPlan plan;
  const auto tiles_of = [&](int64_t warpgroups) { return row_tiles(rows, gate_up, warpgroups); };
  if (tokens <= kMostTokensOfCluster) {
    plan.token_tile = smallest_token_tile(tokens, kMostTokensOfCluster);
    // Tiles of 128 rows read x half as often. With a small matrix, tiles of 64 fill more multiprocessors.
    plan.warpgroups = gate_up || tiles_of(1) > num_sms ? 2 : 1;
    plan.take_tiles(tiles_of(plan.warpgroups), (cols + kStageColumns - 1) / kStageColumns / 4, num_sms);
    return plan;
  }
  plan.warpgroups = 2;
  const auto tiles_with = [&](int64_t tile) { return tiles_of(2) * ((tokens + tile - 1) / tile); };
  const auto rounds_with = [&](int64_t tile) { return (tiles_with(tile) + num_sms - 1) / num_sms; };
  // A tile of 192 tokens takes 0.8 times as long as one of 256.
  const bool takes_192 = tokens <= 192 || 5 * rounds_with(kMostTokensOfTile) > 4 * rounds_with(192);
  plan.token_tile = takes_192 ? 192 : kMostTokensOfTile;
  if (tokens > plan.token_tile) {
    plan.take_rounds(tiles_with(plan.token_tile), num_sms);
  } else {
    plan.take_tiles(tiles_of(2), 1, num_sms);
  }
  return plan;
}

/// The same for quantised weights.
inline StreamPlan tile_stream_plan(int64_t rows, int64_t cols, int64_t tokens, bool gate_up,
                                   int32_t num_sms) {
  constexpr int64_t kTileColumns = 256;
  const int64_t depth = (cols + kTileColumns - 1) / kTileColumns;
  const auto tiles_of = [&](int64_t warpgroups) { return row_tiles(rows, gate_up, warpgroups); };
  StreamPlan plan;
  if (tokens <= kMostTokensOfCluster) {
    plan.token_tile = smallest_token_tile(tokens, kMostTokensOfCluster);
    plan.warpgroups = tiles_of(2) >= num_sms ? 2 : 1;
    plan.take_tiles(tiles_of(plan.warpgroups), depth / 2, num_sms);
    return plan;
  }
  // A tile's time for kTileColumns columns, and for its end, in hundredths of a microsecond.
  struct TileCost {
    int32_t token_tile, warpgroups;
    int64_t columns, end;
  };
  constexpr TileCost kCosts[] = {
      {kMostTokensOfTile, 2, 240, 400}, {192, 2, 195, 350}, {128, 2, 150, 300}, {128, 1, 86, 250}};
  int64_t least = 0, tiles = 0;
  for (const TileCost& cost : kCosts) {
    const int64_t all = tiles_of(cost.warpgroups) * ((tokens + cost.token_tile - 1) / cost.token_tile);
    const bool is_line = tokens <= cost.token_tile;  // the line is divided evenly
    const int64_t in_turn =
        is_line ? std::max<int64_t>(all, num_sms) : (all + num_sms - 1) / num_sms * num_sms;
    const int64_t total = in_turn * (depth * cost.columns + cost.end);
    if (least != 0 && total >= least) continue;
    least = total;
    tiles = all;
    plan.token_tile = cost.token_tile;
    plan.warpgroups = cost.warpgroups;
  }
  if (tokens > plan.token_tile) {
    plan.take_rounds(tiles, num_sms);
  } else {
    plan.take_tiles(tiles, 1, num_sms);
  }
  return plan;
}

/// FP8 weights times FP8 activations. Tiles have at most 128 tokens, and 128 rows each of gate and up, so that their result
/// has one scale for 128 columns. plan.warpgroups counts 64 rows of a tile: 1, 2 or, past 128 tokens and for gate and up, 4.
inline StreamPlan fp8_stream_plan(int64_t rows, int64_t cols, int64_t tokens, bool gate_up, int32_t num_sms) {
  constexpr int64_t kMostTokens = 128, kGroupColumns = 128;
  StreamPlan plan;
  plan.token_tile = smallest_token_tile(tokens, kMostTokens);
  const int64_t token_blocks = (tokens + plan.token_tile - 1) / plan.token_tile;
  const auto tiles_of = [&](int64_t warpgroups) { return row_tiles(rows, gate_up, warpgroups); };
  const auto rounds_of = [&](int64_t warpgroups) {
    return (tiles_of(warpgroups) * token_blocks + num_sms - 1) / num_sms * warpgroups;
  };
  if (gate_up) {
    plan.warpgroups = 4;
  } else if (token_blocks > 1) {
    // A tile of 256 rows takes 1.8 times as long as a tile of 128.
    plan.warpgroups = 9 * rounds_of(4) <= 10 * rounds_of(2) ? 4 : 2;
  } else {
    // Two blocks that divide a tile of 128 rows read x half as often as two blocks with 64 rows each, but meet at the end.
    const bool has_many = tiles_of(1) > (plan.token_tile < kMostTokens ? num_sms / 2 : num_sms);
    plan.warpgroups = has_many ? 2 : 1;
  }
  const int64_t tiles = tiles_of(plan.warpgroups);
  if (token_blocks > 1) {
    plan.take_rounds(tiles * token_blocks, num_sms);
  } else {
    plan.take_tiles(tiles, plan.warpgroups == 4 ? 1 : (cols + kGroupColumns - 1) / kGroupColumns / 4,
                    num_sms);
  }
  return plan;
}

}  // namespace minfer::cuda
