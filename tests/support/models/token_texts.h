#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer::test {

/// Tokens 3 to 2 + num_kinds, at random, the same for the same seed.
inline std::vector<TokenId> random_tokens(int32_t count, uint32_t seed, uint32_t num_kinds = 240) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens)
    token = static_cast<TokenId>(3 + random() % num_kinds);
  return tokens;
}

inline std::vector<TokenId> joined(std::vector<TokenId> tokens, const std::vector<TokenId>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

}  // namespace minfer::test
