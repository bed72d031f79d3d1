#include "models/grammar/token_trie.h"

#include <algorithm>

#include "models/grammar/grammar.h"
#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

bool is_plain_byte(char c) {
  const auto byte = static_cast<uint8_t>(c);
  return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f;
}

bool is_plain(std::string_view bytes) {
  if (!std::ranges::all_of(bytes, is_plain_byte) || valid_utf8_prefix(bytes) != bytes.size()) return false;
  const auto begins_character = [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; };
  return std::ranges::count_if(bytes, begins_character) <= TokenTrie::kPlainCharacters;
}

/// `sorted`: by their bytes; no token is empty.
TokenTrie::Tree make_tree(const TokenTrie& trie, std::vector<TokenId> sorted) {
  TokenTrie::Tree tree;
  tree.nodes.push_back({.byte = 0, .end = 0, .first_token = 0, .num_tokens = 0});
  std::vector<uint32_t> path = {0};  ///< nodes of the last token's bytes, the root in front
  std::string_view last;
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back())
      tree.nodes[path.back()].end = static_cast<uint32_t>(tree.nodes.size());
  };
  for (uint32_t i = 0; i < sorted.size(); ++i) {
    const std::string_view bytes = trie.bytes(sorted[i]);
    const auto shared = static_cast<size_t>(std::ranges::mismatch(last, bytes).in1 - last.begin());
    close_to(shared);
    for (size_t depth = shared; depth < bytes.size(); ++depth) {
      path.push_back(static_cast<uint32_t>(tree.nodes.size()));
      tree.nodes.push_back(
          {.byte = static_cast<uint8_t>(bytes[depth]), .end = 0, .first_token = i, .num_tokens = 0});
    }
    ++tree.nodes[path.back()].num_tokens;
    last = bytes;
  }
  close_to(0);
  tree.nodes.front().end = static_cast<uint32_t>(tree.nodes.size());
  tree.tokens = std::move(sorted);
  return tree;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, int32_t vocab_size)
    : vocab_size_(vocab_size),
      end_tokens_(tokenizer.end_tokens().begin(), tokenizer.end_tokens().end()),
      plain_mask_((static_cast<size_t>(vocab_size) + 31) / 32) {
  text_begin_.reserve(static_cast<size_t>(vocab_size) + 1);
  std::vector<TokenId> plain_tokens, other_tokens;
  for (TokenId token = 0; token < vocab_size; ++token) {
    text_begin_.push_back(static_cast<uint32_t>(text_.size()));
    if (token >= tokenizer.vocab_size()) continue;
    const bool is_control = tokenizer.is_control(token);
    const std::string_view piece = tokenizer.piece(token, is_control);
    // The token of the byte 0xff, which no UTF-8 has, would spell a control token byte by byte.
    const bool is_spoof =
        !is_control && piece.find(static_cast<char>(kControlByte)) != std::string_view::npos;
    if (piece.empty() || is_spoof) continue;
    if (is_control) text_ += static_cast<char>(kControlByte);
    text_ += piece;
    if (!is_control && is_plain(piece)) {
      plain_mask_[static_cast<size_t>(token) / 32] |= 1u << (static_cast<uint32_t>(token) % 32);
      plain_tokens.push_back(token);
    } else {
      other_tokens.push_back(token);
    }
  }
  text_begin_.push_back(static_cast<uint32_t>(text_.size()));
  const auto by_bytes = [&](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  };
  std::ranges::sort(plain_tokens, by_bytes);
  std::ranges::sort(other_tokens, by_bytes);
  plain_ = make_tree(*this, std::move(plain_tokens));
  others_ = make_tree(*this, std::move(other_tokens));
}

std::string_view TokenTrie::bytes(TokenId token) const {
  const auto index = static_cast<size_t>(token);
  return std::string_view(text_).substr(text_begin_[index], text_begin_[index + 1] - text_begin_[index]);
}

}  // namespace minfer
