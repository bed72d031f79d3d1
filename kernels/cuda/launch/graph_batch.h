#pragma once

#include <algorithm>
#include <cstdint>

namespace minfer::cuda {

/// The sequences of the graph that serves `sequences`: the next of 1, 2, 4, 8, 16, 24, ... 64, 80, ... 256,
/// 288, ... (a product's tiles are 8 tokens wide, so less padding would save nothing), at most
/// `max_sequences`. 0 for none.
constexpr int32_t graph_batch(int32_t sequences, int32_t max_sequences) {
  int32_t bucket = 1;
  while (bucket < sequences)
    bucket += bucket < 8 ? bucket : bucket < 64 ? 8 : bucket < 256 ? 16 : 32;
  return sequences > 0 ? std::min(bucket, max_sequences) : 0;
}

/// The tokens of the graph that serves a step whose sequences bring `tokens` together, several for some of them, where the graph has
/// `graph_sequences`: more than these, at most `most`. 0: there is none.
constexpr int32_t graph_tokens(int32_t tokens, int32_t graph_sequences, int32_t most) {
  const int32_t needed = std::max(tokens, graph_sequences + 1);
  return graph_sequences > 0 && needed <= most ? graph_batch(needed, most) : 0;
}

/// Prompt tokens of the largest graph of steps that compute nothing but prompts: with more, the device takes longer for a kernel than the host for
/// its launch, and there is nothing to gain.
inline constexpr int32_t kMostPromptTokens = 256;

/// The tokens of the graph that serves a step of nothing but prompts, in buckets of 8, then 16, like the widths of the products' tiles. 0: there
/// is none.
constexpr int32_t prompt_graph_tokens(int32_t tokens, int32_t graph_sequences) {
  return graph_tokens(tokens, graph_sequences, kMostPromptTokens);
}

}  // namespace minfer::cuda
