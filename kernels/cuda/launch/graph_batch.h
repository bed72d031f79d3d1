#pragma once

#include <algorithm>
#include <cstdint>

namespace minfer::cuda {

/// The number of sequences of the graph that serves `sequences`: the next of 1, 2, 4, 8, 16, 24, ... 64, 80,
/// ... 256, 288, ... (a product's tiles are 8 tokens wide, so less padding would save nothing), at most
/// `max_sequences`. 0 for 0.
constexpr int32_t graph_batch(int32_t sequences, int32_t max_sequences) {
  int32_t bucket = 1;
  while (bucket < sequences)
    bucket += bucket < 8 ? bucket : bucket < 64 ? 8 : bucket < 256 ? 16 : 32;
  return sequences > 0 ? std::min(bucket, max_sequences) : 0;
}

/// The number of tokens of the graph that serves a step with `tokens` tokens, if some of its sequences bring several and
/// the graph has `graph_sequences` sequences. It is larger than graph_sequences and at most `most`. 0: there is no graph.
constexpr int32_t graph_tokens(int32_t tokens, int32_t graph_sequences, int32_t most) {
  const int32_t needed = std::max(tokens, graph_sequences + 1);
  return graph_sequences > 0 && needed <= most ? graph_batch(needed, most) : 0;
}

/// Prompt tokens of the largest graph of steps that compute prompts alone. With more, a kernel takes the device
/// longer than its launch takes the host, so a graph gains nothing.
inline constexpr int32_t kMostPromptTokens = 256;

/// The number of tokens of the graph that serves a step of prompts alone, in buckets of 8, then 16, like the
/// widths of the products' tiles. 0: there is no graph.
constexpr int32_t prompt_graph_tokens(int32_t tokens, int32_t graph_sequences) {
  return graph_tokens(tokens, graph_sequences, kMostPromptTokens);
}

}  // namespace minfer::cuda
