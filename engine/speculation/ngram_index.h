#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// Where the last tokens of a sequence stood before in it. It knows the newest place of each n-gram, in a hash table of places
/// alone. A hit compares the tokens; a collision forgets the older place. So a token costs the same wherever it stands and whatever
/// the tokens are. The table stops growing at kMostPlaces: in longer sequences it forgets roughly the oldest places first.
class NgramIndex {
 public:
  static constexpr size_t kMostPlaces = size_t{1} << 17;

  /// Indexes n-grams of `min_length` to `max_length` tokens, at most kLongestNgram. `num_tokens`: the number that will come at once.
  NgramIndex(int32_t min_length, int32_t max_length, int32_t num_tokens);

  struct Match {
    int32_t next = -1;   ///< the token that followed there; -1: the last token is new
    int32_t length = 0;  ///< of the n-gram
  };

  /// Takes the last of `tokens`, which are the tokens of the call before and this one.
  /// Returns what followed the longest n-gram at the end of `tokens` when it last came.
  Match add(std::span<const TokenId> tokens);

 private:
  void enter(std::span<const TokenId> tokens, Match* match);
  void grow(std::span<const TokenId> tokens);

  int32_t min_length_;
  int32_t max_length_;
  size_t num_entered_ = 0;
  std::vector<int32_t> places_;  ///< by hash: index behind an n-gram, 0: none; a power of two
};

}  // namespace minfer
