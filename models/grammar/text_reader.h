#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace minfer {

/// A place in the text of a grammar. The readers of GBNF, Lark and regular expressions share it.
class TextReader {
 public:
  /// `kind` begins messages. `comment`: begins a comment, as # does.
  TextReader(std::string_view kind, std::string_view text, std::string_view comment = "#")
      : text_(text), end_(text.size()), kind_(kind), comment_(comment) {}
  virtual ~TextReader() = default;

  bool at_end() const { return position_ >= end_; }
  /// The next byte; 0 at the end.
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  bool skip(std::string_view expected);
  /// Throws GrammarError with the place.
  [[noreturn]] void refuse(std::string_view what) const;

 protected:
  std::string_view rest() const {
    return at_end() ? std::string_view() : text_.substr(position_, end_ - position_);
  }
  ptrdiff_t line_at(size_t position) const;
  virtual std::string place() const;
  /// Skips white space and comments, over line ends or up to the next line end.
  void skip_space(bool over_lines);
  /// Skips a | that continues alternatives; outside of groups, on a later line too. False: there is none.
  bool skip_to_alternative(bool in_group);
  template <class IsIn>
  std::string_view take_while(const IsIn& is_in) {
    const size_t begin = position_;
    while (!at_end() && is_in(text_[position_]))
      ++position_;
    return text_.substr(begin, position_ - begin);
  }
  char32_t take_code_point();  ///< not at the end
  // No value: none is next.
  std::optional<int64_t> take_number();  ///< 0 or more
  std::optional<char32_t> take_hex(int digits);

  std::string_view text_;
  size_t position_ = 0;
  size_t end_;  ///< of the current part

 private:
  std::string_view kind_;
  std::string_view comment_;
};

}  // namespace minfer
