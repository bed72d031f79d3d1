// The evaluator's steps have the length that its options give.
#include "engine/evaluator.h"

#include <gtest/gtest.h>

namespace minfer {
namespace {

std::vector<int32_t> first_positions(const EngineOptions& options, int32_t chunk) {
  const auto model = open_model("synthetic:tiny:f32");
  Evaluator evaluator(*model, options);
  std::vector<int32_t> positions;
  evaluator.run(std::vector<TokenId>(1200, 7), chunk,
                [&](int32_t first, std::span<const float>) { positions.push_back(first); });
  return positions;
}

TEST(EvaluatorTest, AStepTakesWhatMaxNumBatchedTokensAllows) {
  EXPECT_EQ(first_positions({.max_num_batched_tokens = 2048}, 0), (std::vector<int32_t>{0}));
  EXPECT_EQ(first_positions({.max_num_batched_tokens = 700}, 0), (std::vector<int32_t>{0, 700}));
}

TEST(EvaluatorTest, AChunkMayBeShorterNotLonger) {
  EXPECT_EQ(first_positions({.max_num_batched_tokens = 600}, 500), (std::vector<int32_t>{0, 500, 1000}));
  EXPECT_EQ(first_positions({.max_num_batched_tokens = 600}, 900), (std::vector<int32_t>{0, 600}));
}

}  // namespace
}  // namespace minfer
