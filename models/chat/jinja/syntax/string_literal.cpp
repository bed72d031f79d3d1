#include "models/chat/jinja/syntax/string_literal.h"

#include <charconv>

#include "models/chat/jinja/syntax/lexer.h"
#include "models/chat/jinja/value/unicode.h"

namespace minfer::jinja {
namespace {

/// Digits of the number at the front of `text`, `count` of base 16, moved out of it.
char32_t take_hex(std::string_view& text, size_t count, int line) {
  uint32_t code = 0;
  const std::string_view digits = text.substr(0, count);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != count || parsed.ptr != digits.data() + count)
    fail_at(line, "a \\x, \\u or \\U escape with fewer than {} hexadecimal digits", count);
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail_at(line, "U+{:04X} is no character", code);
  text.remove_prefix(count);
  return code;
}

char32_t take_octal(std::string_view& text) {
  char32_t code = 0;
  for (int i = 0; i < 3 && !text.empty() && text.front() >= '0' && text.front() <= '7'; ++i) {
    code = code * 8 + static_cast<char32_t>(text.front() - '0');
    text.remove_prefix(1);
  }
  return code;
}

}  // namespace

std::string unescape(std::string_view literal, int line) {
  constexpr std::string_view kNames = "\\'\"abfnrtv";
  constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
  std::string text;
  while (!literal.empty()) {
    const size_t plain = std::min(literal.find('\\'), literal.size());
    text += literal.substr(0, plain);
    literal.remove_prefix(plain);
    if (literal.empty()) break;
    if (literal.size() == 1) fail_at(line, "a string that ends within an escape");
    const char name = literal[1];
    const size_t known = kNames.find(name);
    if (name >= '0' && name <= '7') {
      literal.remove_prefix(1);
      append_utf8(text, take_octal(literal));
      continue;
    }
    literal.remove_prefix(2);
    if (known != std::string_view::npos) {
      text += kMeanings[known];
    } else if (name == 'x' || name == 'u' || name == 'U') {
      append_utf8(text, take_hex(literal, name == 'x' ? 2 : name == 'u' ? 4 : 8, line));
    } else if (name != '\n') {
      text += '\\';
      text += name;
    }
  }
  return text;
}

}  // namespace minfer::jinja
