#include "kernels/cuda/device/graph_batch.h"

#include <utility>

#include <gtest/gtest.h>

namespace minfer {
namespace {

using cuda::graph_batch;

TEST(GraphBatch, IsTheNextBucketAndNeverSmallerThanTheBatch) {
  EXPECT_EQ(graph_batch(0, 256), 0);
  for (const auto& [sequences, bucket] : {std::pair{1, 1},
                                          {2, 2},
                                          {3, 4},
                                          {5, 8},
                                          {8, 8},
                                          {9, 16},
                                          {17, 24},
                                          {64, 64},
                                          {65, 80},
                                          {256, 256},
                                          {257, 288}}) {
    EXPECT_EQ(graph_batch(sequences, 1024), bucket) << sequences;
  }
  for (int32_t sequences = 1; sequences <= 1024; ++sequences)
    EXPECT_GE(graph_batch(sequences, 1024), sequences);
}

TEST(GraphBatch, StaysWithinTheSequencesOfAStep) {
  EXPECT_EQ(graph_batch(33, 36), 36);
  EXPECT_EQ(graph_batch(36, 36), 36);
  EXPECT_EQ(graph_batch(5, 6), 6);
}

}  // namespace
}  // namespace minfer
