#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/tokenizer/vocabulary.h"

namespace minfer {

/// The longest token text that is searched for in prompts. So the search is linear for any file.
inline constexpr size_t kMaxSpecialTokenBytes = 1024;

/// Tokens that stand for themselves and take no part in merging: control, unknown, user-defined.
constexpr bool is_special(TokenType type) {
  return type == TokenType::control || type == TokenType::unknown || type == TokenType::user_defined;
}

/// Completes data that files leave out. Fills `types` if empty. Adds to `end_tokens` the tokens whose text is a
/// well-known end of turn (<|eot_id|>, <|im_end|>, ...), and makes them control tokens. Afterwards end_tokens
/// holds every end token once. Completes the tokens around a gap to fill in the same way.
void complete_special_tokens(Vocabulary& vocabulary);

/// Finds the texts of special tokens in prompts, the longest at each position. Immutable.
class SpecialTokens {
 public:
  explicit SpecialTokens(const Vocabulary& vocabulary);

  struct Fragment {
    TokenId token;          ///< -1: plain text
    std::string_view text;  ///< of the plain text, or of the token
  };
  /// Cuts `text` at user-defined tokens and, if `parse_special`, at control and unknown tokens. No fragment is empty.
  std::vector<Fragment> split(std::string_view text, bool parse_special) const;

 private:
  /// Texts in byte order, which makes the texts that share a prefix a range.
  struct TextSet {
    std::vector<std::pair<std::string, TokenId>> entries;
    std::array<bool, 256> starts{};  ///< first bytes that occur

    void build();
    /// The longest entry that `text` begins with, or null.
    const std::pair<std::string, TokenId>* longest_prefix(std::string_view text) const;
  };

  TextSet user_defined_;
  TextSet all_;
  bool strip_right_;
};

}  // namespace minfer
