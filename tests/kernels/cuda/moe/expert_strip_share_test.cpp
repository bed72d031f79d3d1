#include "kernels/cuda/moe/expert_strip_share.h"

#include <algorithm>
#include <utility>

#include <gtest/gtest.h>

namespace minfer::cuda {
namespace {

/// The batches of a block's strips take turns: returns whether strip `at` belongs to a large batch.
bool is_large(const ExpertStripShare& share, int32_t at) {
  const int32_t batch = at / share.strips;
  const int32_t turns = std::min(share.large, share.small);
  return batch < 2 * turns ? batch % 2 == 0 : share.large > share.small;
}

TEST(ExpertStripShare, BlocksTakeEquallyLong) {
  for (const auto& [large, small] :
       {std::pair{0, 1}, {1, 0}, {1, 1}, {12, 20}, {20, 12}, {3, 125}, {0, 32}, {40, 0}}) {
    for (const int32_t strips : {1, 3, 48, 180}) {
      for (const int32_t blocks : {1, 7, 78, 132}) {
        const ExpertStripShare share{large, small, strips};
        const int64_t all = kLargeStripCost * large * strips + kSmallStripCost * small * strips;
        ASSERT_EQ(share.first_of(0, blocks), 0);
        ASSERT_EQ(share.first_of(blocks, blocks), (large + small) * strips);
        for (int32_t block = 0; block < blocks; ++block) {
          int64_t cost = 0;
          ASSERT_LE(share.first_of(block, blocks), share.first_of(block + 1, blocks));
          for (int32_t at = share.first_of(block, blocks); at < share.first_of(block + 1, blocks); ++at)
            cost += is_large(share, at) ? kLargeStripCost : kSmallStripCost;
          EXPECT_NEAR(static_cast<double>(cost), static_cast<double>(all) / blocks, kLargeStripCost)
              << large << " large and " << small << " small batches of " << strips << ", block " << block
              << " of " << blocks;
        }
      }
    }
  }
}

/// 128 experts of 4,096 rows with many batches each.
TEST(ExpertStripShare, HasRoomForLargeNumbers) {
  const ExpertStripShare share{10000, 10000, 2048};
  EXPECT_EQ(share.first_of(132, 132), 20000 * 2048);
  EXPECT_EQ(share.first_of(66, 132), 10000 * 2048);
}

}  // namespace
}  // namespace minfer::cuda
