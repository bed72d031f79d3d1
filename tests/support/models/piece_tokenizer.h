#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer::test {

/// A vocabulary of given pieces, for tests of the code above the tokeniser: token i stands for pieces[i].
/// The last token is a control token and ends a generation. Counts how often a piece was asked for.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    pieces_.push_back("</s>");
    end_ = static_cast<TokenId>(pieces_.size()) - 1;
  }

  std::vector<TokenId> encode_parts(std::span<const PromptPart>, bool) const override { return {}; }
  std::string_view piece(TokenId id, bool with_special) const override {
    ++num_decoded;
    return id == end_ && !with_special ? std::string_view() : pieces_.at(static_cast<size_t>(id));
  }
  std::string decode(std::span<const TokenId> ids, bool with_special) const override {
    std::string text;
    for (TokenId id : ids)
      text += piece(id, with_special);
    return text;
  }
  int32_t vocab_size() const override { return static_cast<int32_t>(pieces_.size()); }
  TokenId bos() const override { return -1; }
  TokenId eos() const override { return end_; }
  std::span<const TokenId> end_tokens() const override { return {&end_, 1}; }
  bool is_control(TokenId id) const override { return id == end_; }

  mutable int num_decoded = 0;

 private:
  std::vector<std::string> pieces_;
  TokenId end_;
};

}  // namespace minfer::test
