#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The tokens of a vocabulary as a tree of their bytes, for grammars to walk. A control token is kControlByte and its text, so
/// only a grammar that names it allows it. A token without bytes, or another token with that byte, is never allowed. Immutable:
/// any thread may use it.
class TokenTrie {
 public:
  /// Nodes are in depth-first order: the first child of a node is the next node, if that is within the subtree.
  struct Node {
    uint8_t byte;
    uint32_t end;          ///< the node behind its subtree
    uint32_t first_token;  ///< of sorted_tokens(): tokens that end here
    uint32_t num_tokens;
  };

  /// `vocab_size`: may exceed the tokeniser's own size (padding of the model); ids beyond the tokeniser's are never allowed.
  TokenTrie(const Tokenizer& tokenizer, int32_t vocab_size);

  int32_t vocab_size() const { return vocab_size_; }
  std::span<const TokenId> end_tokens() const { return end_tokens_; }
  /// The bytes of a token, as grammars see them.
  std::string_view bytes(TokenId token) const;

  /// Plain tokens have at most kPlainCharacters characters, all of them printable UTF-8 that JSON does not escape. If all plain tokens are
  /// allowed, only the tree without them is walked.
  static constexpr int kPlainCharacters = 20;
  std::span<const uint32_t> plain_mask() const { return plain_mask_; }

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
  Tree plain_;
  Tree others_;
};

}  // namespace minfer
