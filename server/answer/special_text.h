#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// Takes control tokens out of an answer's text again: its parser had to see them, as some formats write their markers with
/// them, and the client must not. Of the tokens that came, so that the same letters from a person stay where none did. One thread.
class SpecialText {
 public:
  explicit SpecialText(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  /// Tokens that came: the control tokens among them are taken out from now on.
  void see(std::span<const TokenId> tokens);
  /// `text` without them. What may be the beginning of one stays here until the next call.
  std::string push(std::string_view text);
  /// What is left here: it began none.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  std::vector<TokenId> seen_;
  std::vector<std::string_view> texts_;  ///< of seen_, as the tokeniser has them
  std::string held_;
};

}  // namespace minfer
