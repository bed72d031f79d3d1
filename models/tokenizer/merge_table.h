#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "models/tokenizer/vocabulary.h"

namespace minfer {

/// The merges of a BPE vocabulary; applies them to words. Immutable.
class MergeTable {
 public:
  /// `pieces` is the running text of each token and outlives this. Merges rank in file order. Throws FileError if a merge is not two texts
  /// in the vocabulary's spelling, or if the vocabulary lacks a part or the result. Leaves out merges that take or make a special token or
  /// a byte token.
  MergeTable(const Vocabulary& vocabulary, std::span<const std::string> pieces);

  /// The token that merging may produce for this running text, of several the first; -1: none.
  TokenId find(std::string_view text) const;

  /// Applies merges to `symbols` until none applies: always the best-ranked pair, and the leftmost among equal pairs.
  /// -1 among the symbols merges with nothing. O(n log n) for n symbols.
  void merge(std::vector<TokenId>& symbols) const;

 private:
  struct Merge {
    TokenId left;
    TokenId right;
    int32_t rank;
    TokenId merged;
  };

  const Merge* find(TokenId left, TokenId right) const;

  std::unordered_map<std::string_view, TokenId> plain_ids_;  ///< by running text
  std::vector<Merge> merges_;                                ///< by (left, right)
  std::vector<uint32_t> first_;  ///< merges_ of left token t are [first_[t], first_[t + 1])
};

}  // namespace minfer
