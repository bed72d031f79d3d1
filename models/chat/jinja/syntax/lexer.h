#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/jinja/value/errors.h"

namespace minfer::jinja {

enum class TokenType : uint8_t {
  data,            ///< text outside tags
  variable_begin,  ///< {{
  variable_end,
  block_begin,  ///< {%
  block_end,
  name,
  string,  ///< value: without quotes, escapes resolved
  integer,
  real,
  symbol,  ///< an operator or a bracket
  end,
};

struct Token {
  TokenType type = TokenType::end;
  std::string value;
  int line = 1;
};

/// Cuts a template into tokens as Jinja2 does with trim_blocks and lstrip_blocks set, which is how chat templates are read: the line break
/// behind a block tag and the white space in front of one are not part of the text, `-` takes all white space, `+` none. Comments and the
/// marks of raw blocks are left out. The last token is `end`. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

/// How a message shows a token.
std::string describe(const Token& token);

/// Throws TemplateError "line N: ...".
template <class... Args>
[[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
  fail<TemplateError>("line {}: {}", line, fmt::format(format, std::forward<Args>(args)...));
}

/// Resolves the escapes of a string literal (the text between its quotes, in `line`) like Python; an unknown escape stays unchanged.
/// Throws TemplateError for an incomplete one and for half of a surrogate pair.
std::string unescape(std::string_view literal, int line);

/// The tokens of a template, one after the other.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[position_]; }
  const Token& look() const { return tokens_[std::min(position_ + 1, tokens_.size() - 1)]; }
  int line() const { return current().line; }
  Token next() {
    const Token token = current();
    if (position_ + 1 < tokens_.size()) ++position_;
    return token;
  }

  bool at(TokenType type) const { return current().type == type; }
  bool at_symbol(std::string_view symbol) const { return is(current(), TokenType::symbol, symbol); }
  bool at_name(std::string_view name) const { return is(current(), TokenType::name, name); }
  bool at_name_of(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names)
      if (at_name(name)) return true;
    return false;
  }
  bool skip_symbol(std::string_view symbol) { return at_symbol(symbol) && skip(); }
  bool skip_name(std::string_view name) { return at_name(name) && skip(); }

  void expect_symbol(std::string_view symbol) {
    if (!skip_symbol(symbol)) fail_expected(fmt::format("'{}'", symbol));
  }
  void expect_name(std::string_view name) {
    if (!skip_name(name)) fail_expected(fmt::format("'{}'", name));
  }
  Token expect(TokenType type, std::string_view what) {
    if (!at(type)) fail_expected(what);
    return next();
  }
  /// Calls `parse_item` for each of the items that commas separate, up to the bracket `close`.
  template <class ParseItem>
  void each_item(std::string_view close, ParseItem parse_item) {
    while (!at_symbol(close)) {
      parse_item();
      if (!skip_symbol(",")) break;
    }
    expect_symbol(close);
  }
  [[noreturn]] void fail_expected(std::string_view what) const {
    fail_at(line(), "expected {}, found {}", what, describe(current()));
  }

  static bool is(const Token& token, TokenType type, std::string_view value) {
    return token.type == type && token.value == value;
  }

 private:
  bool skip() {
    next();
    return true;
  }

  std::vector<Token> tokens_;
  size_t position_ = 0;
};

}  // namespace minfer::jinja
