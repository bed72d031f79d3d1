#include "kernels/cuda/moe/stream/expert_plan.h"

#include <gtest/gtest.h>

namespace minfer::cuda {
namespace {

TEST(ExpertPlan, StreamsWhereExpertsHaveManyRoutes) {
  for (const DType type : {DType::bf16, DType::q4_k}) {
    for (const int64_t experts : {1, 8, 32, 128, 512}) {
      int32_t last = 0;
      for (int64_t routes = 0; routes <= 200 * experts; ++routes) {
        const int32_t tile = expert_token_tile(type, routes, experts);
        EXPECT_TRUE(tile == 0 || tile == 32 || tile == 64 || tile == 128);
        EXPECT_GE(tile, last) << routes << " routes of " << experts << " experts";
        last = tile;
      }
      EXPECT_EQ(last, 128);
    }
    EXPECT_EQ(expert_token_tile(type, 0, 1), 0);
    EXPECT_EQ(expert_token_tile(type, 8, 128), 0) << "one token";
    EXPECT_EQ(expert_token_tile(type, 64 * 8, 128), 32);
    EXPECT_EQ(expert_token_tile(type, 512 * 8, 128), 64);
    EXPECT_EQ(expert_token_tile(type, 2048 * 8, 128), 128);
    EXPECT_EQ(expert_token_tile(type, 2048 * 2, 8), 128);
  }
  EXPECT_EQ(expert_token_tile(DType::bf16, 16 * 8, 128), 32);
  EXPECT_EQ(expert_token_tile(DType::q4_k, 16 * 8, 128), 0);
}

}  // namespace
}  // namespace minfer::cuda
