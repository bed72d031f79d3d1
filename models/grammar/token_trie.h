#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The tokens of a vocabulary as a tree of their bytes, for grammars to walk. A control token stands as kControlByte and its text, so
/// that only a grammar that names it allows it; a token without any bytes, or another one with that byte, is never allowed. Immutable:
/// any thread may use it.
class TokenTrie {
 public:
  /// Nodes in depth-first order: the first child of a node is the next one, if that one is within its subtree.
  struct Node {
    uint8_t byte;
    uint32_t end;          ///< the node behind its subtree
    uint32_t first_token;  ///< of sorted_tokens(): tokens that end here
    uint32_t num_tokens;
  };

  /// `tokenizer`: of `vocab_size` tokens at least; ids beyond its own (padding of the model's) are never allowed.
  TokenTrie(const Tokenizer& tokenizer, int32_t vocab_size);

  int32_t vocab_size() const { return vocab_size_; }
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  /// The bytes of a token as grammars see it.
  std::string_view bytes(TokenId token) const;

  /// Tokens of at most kPlainCharacters characters that are all plain: printable UTF-8 that JSON does not escape. Where all of these are
  /// allowed, the tree without them is walked.
  static constexpr int kPlainCharacters = 20;
  std::span<const uint32_t> plain_mask() const { return plain_mask_; }
  int32_t num_plain() const { return num_plain_; }

  struct Tree {
    std::vector<Node> nodes;  ///< [0] is the root
    std::vector<TokenId> tokens;
  };
  const Tree& plain() const { return plain_; }    ///< of plain tokens
  const Tree& others() const { return others_; }  ///< of all others

 private:
  int32_t vocab_size_;
  std::vector<TokenId> end_tokens_;
  std::string text_;
  std::vector<uint32_t> text_begin_;  ///< [vocab_size + 1]
  std::vector<uint32_t> plain_mask_;
  int32_t num_plain_ = 0;
  Tree plain_;
  Tree others_;
};

}  // namespace minfer
