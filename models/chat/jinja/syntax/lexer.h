#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat/jinja/errors.h"

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

/// Cuts a template into tokens as Jinja2 does with trim_blocks and lstrip_blocks set, which is how chat
/// templates are read: the line break behind a block tag and the white space in front of one are not part of
/// the text, `-` takes all white space, `+` none. Comments and the marks of raw blocks are left out. The last
/// token is `end`. Throws TemplateError.
std::vector<Token> tokenize(std::string_view source);

/// How a message shows a token.
std::string describe(const Token& token);

/// Throws TemplateError "line N: ...".
template <class... Args>
[[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
  fail<TemplateError>("line {}: {}", line, fmt::format(format, std::forward<Args>(args)...));
}

/// What stands between the quotes of a string literal of `line` with its escapes resolved as Python does; an
/// unknown escape stays as it is. Throws TemplateError for an incomplete one and for half of a surrogate
/// pair.
std::string unescape(std::string_view literal, int line);

}  // namespace minfer::jinja
