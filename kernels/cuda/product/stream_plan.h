#pragma once

#include <algorithm>
#include <cstdint>

namespace minfer::cuda {

/// How stream_product() divides a product over thread blocks: tiles of rows, each with all tokens. A cluster of blocks divides the
/// columns of a tile (splits > 1), or the columns of all tiles stand in one line that is divided evenly.
struct StreamPlan {
  int32_t token_tile = 8;  ///< 8, 16, 32, 64 or 128, not below the tokens
  int32_t warpgroups = 1;  ///< that multiply, 64 rows of weights each
  int32_t splits = 1;      ///< blocks that divide a tile's columns
  int32_t pair = 1;        ///< 2: blocks share what they read of x
  int32_t blocks = 1;
};

inline constexpr int32_t kStageColumns = 64;   ///< of K, that are multiplied at a time
inline constexpr int32_t kWarpgroupRows = 64;  ///< of weights
inline constexpr int32_t kLeastTokensOfPair = 16;

/// `rows`: of the output; with gate_up as many of each. By measurements on an H200, whose multiprocessors it is made for.
inline StreamPlan stream_plan(int64_t rows, int64_t cols, int64_t tokens, bool gate_up, int32_t num_sms) {
  StreamPlan plan;
  while (plan.token_tile < tokens)
    plan.token_tile *= 2;
  const int64_t weight_rows = gate_up ? 2 * rows : rows;
  const auto tiles_of = [&](int64_t warpgroups) {
    return (weight_rows + warpgroups * kWarpgroupRows - 1) / (warpgroups * kWarpgroupRows);
  };
  // Tiles of 128 rows read x half as often, those of 64 fill the multiprocessors of a matrix that is small. With 128 tokens x is as
  // large as a tile's weights, so that two blocks for a large tile are better than one for each half.
  plan.warpgroups = gate_up || tiles_of(1) > (plan.token_tile < 128 ? num_sms : num_sms / 2) ? 2 : 1;
  const int64_t tiles = tiles_of(plan.warpgroups);
  // Clusters of more than two leave multiprocessors without a block where their number in a group does not divide by it.
  const int64_t depth = (cols + kStageColumns - 1) / kStageColumns;
  const int64_t fitting_pairs = num_sms / tiles, fitting = num_sms * 3 / 4 / tiles;
  const int64_t splits =
      std::min({std::max(std::min<int64_t>(fitting_pairs, 2), std::min<int64_t>(fitting, 4)), depth / 4});
  plan.splits = static_cast<int32_t>(std::max<int64_t>(1, splits));
  plan.pair =
      plan.splits == 1 && plan.warpgroups == 2 && plan.token_tile >= kLeastTokensOfPair && tiles > 1 ? 2 : 1;
  if (plan.pair == 2) {
    plan.blocks = static_cast<int32_t>(2 * std::min<int64_t>((tiles + 1) / 2, num_sms / 2));
    return plan;
  }
  plan.blocks =
      static_cast<int32_t>(plan.splits > 1 ? tiles * plan.splits : std::min<int64_t>(tiles, num_sms));
  return plan;
}

}  // namespace minfer::cuda
