#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace minfer {

/// A place in the text of a Lark grammar. Reads the parts below the structure of rules: space, names, counts, strings. Errors are
/// GrammarErrors with the line.
class LarkText {
 public:
  explicit LarkText(std::string_view text) : text_(text), end_(text.size()) {}

  static bool is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  }
  bool at_end() const { return position_ >= end_; }
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  std::string found() const;
  [[noreturn]] void refuse(std::string_view what) const;
  [[noreturn]] void refuse_found(std::string_view expected) const;
  bool skip(std::string_view expected);
  void enter(size_t begin, size_t end);
  /// Skips white space and comments, over line ends or up to the next line end.
  void skip_space(bool over_lines);
  std::string take_name();
  int64_t take_number();
  std::vector<char32_t> take_characters();
  char32_t take_escape();

 protected:
  std::string_view text_;
  size_t position_ = 0;
  size_t end_;  ///< of the current part
};

/// The regular expression of a terminal that Lark grammars import from `common`; empty: the name is unknown.
std::string_view common_terminal(std::string_view name);

}  // namespace minfer
