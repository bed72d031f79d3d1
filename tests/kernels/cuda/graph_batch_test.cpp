#include "kernels/cuda/launch/graph_batch.h"

#include <utility>

#include <gtest/gtest.h>

namespace minfer {
namespace {

using cuda::graph_batch;
using cuda::graph_tokens;
using cuda::prompt_graph_tokens;

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

TEST(GraphBatch, HasMoreTokensThanSequencesWhereSomeBringSeveral) {
  EXPECT_EQ(graph_tokens(2, 1, 64), 2);
  EXPECT_EQ(graph_tokens(6, 1, 64), 8);
  EXPECT_EQ(graph_tokens(4, 4, 64), 8) << "three sequences of which one brings two, in a graph of four";
  EXPECT_EQ(graph_tokens(30, 16, 64), 32);
  EXPECT_EQ(graph_tokens(60, 16, 61), 61);
  EXPECT_EQ(graph_tokens(62, 16, 61), 0);
  EXPECT_EQ(graph_tokens(3, 61, 61), 0);
  for (int32_t sequences = 1; sequences <= 40; ++sequences) {
    for (int32_t tokens = sequences + 1; tokens <= 300; ++tokens) {
      const int32_t in_graph = graph_tokens(tokens, graph_batch(sequences, 40), 256);
      EXPECT_EQ(in_graph == 0, tokens > 256) << sequences << " " << tokens;
      if (in_graph > 0) {
        EXPECT_GE(in_graph, tokens);
        EXPECT_GT(in_graph, graph_batch(sequences, 40));
      }
    }
  }
}

TEST(GraphBatch, HoldsPromptsOfFewTokens) {
  EXPECT_EQ(prompt_graph_tokens(1, 1), 2) << "a token and no padding sequence's";
  EXPECT_EQ(prompt_graph_tokens(17, 1), 24);
  EXPECT_EQ(prompt_graph_tokens(33, 4), 40);
  EXPECT_EQ(prompt_graph_tokens(130, 2), 144);
  EXPECT_EQ(prompt_graph_tokens(256, 8), 256);
  EXPECT_EQ(prompt_graph_tokens(257, 8), 0);
  EXPECT_EQ(prompt_graph_tokens(256, 256), 0) << "more tokens than sequences";
}

}  // namespace
}  // namespace minfer
