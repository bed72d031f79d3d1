#pragma once

#include <cstdint>

namespace minfer {

/// One of `count` devices that run a model together (tensor parallelism). Each has its share of the weights and of the KV
/// cache, and all compute every step. The first one draws the tokens.
struct Rank {
  int32_t index = 0;
  int32_t count = 1;

  bool is_alone() const { return count == 1; }
  bool is_first() const { return index == 0; }
  bool operator==(const Rank&) const = default;
};

/// The number of a vocabulary's tokens that each rank has. If they do not divide, the last rank has fewer, and rows of logits stay aligned.
constexpr int32_t share_of_vocabulary(int32_t tokens, int32_t ranks) {
  return tokens % ranks == 0 ? tokens / ranks : (tokens / ranks + 16) / 16 * 16;
}

}  // namespace minfer
