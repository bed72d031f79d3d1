#include "models/chat/jinja/syntax/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "models/chat/jinja/value/unicode.h"
#include "models/gguf/printable.h"

namespace minfer::jinja {
namespace {

constexpr std::array<std::string_view, 26> kSymbols{"**", "//", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

/// With '\n' for every kind of line break, and without the last one.
std::string normalise_lines(std::string_view source) {
  std::string lines;
  lines.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    lines += source[i] == '\r' ? '\n' : source[i];
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (lines.ends_with('\n')) lines.pop_back();
  return lines;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalise_lines(source)) {}

  std::vector<Token> run() {
    while (position_ < source_.size())
      read_data();
    add(TokenType::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  char peek(size_t ahead = 0) const {
    return position_ + ahead < source_.size() ? source_[position_ + ahead] : '\0';
  }

  void add(TokenType type, std::string value) { tokens_.push_back({type, std::move(value), line_}); }

  /// Moves on, counting lines. Whether a line starts there matters to the white space in front of the next tag.
  void advance(size_t length) {
    const auto passed = rest().substr(0, length);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    line_starting_ = passed.ends_with('\n');
    position_ += length;
  }

  /// Bytes of the characters at the front of `text` that `accept` takes.
  template <class Accept>
  static size_t prefix_length(std::string_view text, Accept accept) {
    size_t length = 0;
    while (length < text.size()) {
      const Utf8Unit unit = read_utf8(text.substr(length));
      if (unit.kind != Utf8Unit::Kind::character || !accept(unit.character)) break;
      length += unit.length;
    }
    return length;
  }

  static size_t space_length(std::string_view text) { return prefix_length(text, is_space); }

  /// Text up to the next tag, then the tag.
  void read_data() {
    size_t tag = source_.find('{', position_);
    while (tag != std::string::npos &&
           std::string_view("%{#").find(tag + 1 < source_.size() ? source_[tag + 1] : ' ') ==
               std::string_view::npos) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos) {
      add(TokenType::data, std::string(rest()));
      advance(rest().size());
      return;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    add_data(rest().substr(0, tag - position_), sign, kind != '{');
    const bool signed_tag = sign == '-' || sign == '+';
    advance(tag - position_ + (signed_tag ? 3 : 2));
    line_starting_ = false;
    if (kind == '#') {
      read_comment();
    } else if (kind == '{') {
      read_tag(TokenType::variable_begin);
    } else if (const size_t length = raw_begin_length(); length > 0) {
      advance(length);
      read_raw();
    } else {
      read_tag(TokenType::block_begin);
    }
  }

  /// The text in front of a tag, less what the tag's sign or lstrip_blocks takes.
  void add_data(std::string_view text, char sign, bool strip_line) {
    if (sign == '-') {
      const std::string_view kept = strip_ends(text, is_space);
      text = text.substr(0, kept.empty() ? 0 : static_cast<size_t>(kept.end() - text.begin()));
    } else if (sign != '+' && strip_line) {
      const size_t line_begin = text.rfind('\n') + 1;  // 0 if there is none
      const std::string_view last_line = text.substr(line_begin);
      if ((line_begin > 0 || line_starting_) && space_length(last_line) == last_line.size())
        text = text.substr(0, line_begin);
    }
    if (!text.empty()) add(TokenType::data, std::string(text));
  }

  /// Bytes of the end of a tag that closes with `close` ("%}", "#}"), whose sign stands in front; 0: none here.
  size_t end_length(std::string_view text, std::string_view close) const {
    const bool is_signed = text.starts_with('-') || (text.starts_with('+') && close != "}}");
    if (!text.substr(is_signed ? 1 : 0).starts_with(close)) return 0;
    const size_t length = close.size() + (is_signed ? 1 : 0);
    if (text.starts_with('-')) return length + space_length(text.substr(length));
    const bool trims = !is_signed && close != "}}" && text.substr(length).starts_with('\n');
    return length + (trims ? 1 : 0);
  }

  void read_comment() {
    const size_t close = source_.find("#}", position_);
    if (close == std::string::npos) fail_at(line_, "a comment without its end, expected '#}}'");
    const bool is_signed = close > position_ && (source_[close - 1] == '-' || source_[close - 1] == '+');
    advance(close - position_ - (is_signed ? 1 : 0));
    advance(end_length(rest(), "#}"));
  }

  /// Bytes of "raw %}" if that is what stands behind "{%".
  size_t raw_begin_length() const {
    std::string_view text = rest();
    const auto skip_space = [&text] { text.remove_prefix(space_length(text)); };
    skip_space();
    if (!text.starts_with("raw")) return 0;
    text.remove_prefix(3);
    skip_space();
    const bool dash = text.starts_with('-');
    if (!text.substr(dash ? 1 : 0).starts_with("%}")) return 0;
    text.remove_prefix(dash ? 3 : 2);
    if (dash) skip_space();
    return rest().size() - text.size();
  }

  void read_raw() {
    for (size_t tag = source_.find("{%", position_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      std::string_view text = std::string_view(source_).substr(tag + 2);
      const char sign = text.empty() ? ' ' : text.front();
      if (sign == '-' || sign == '+') text.remove_prefix(1);
      text.remove_prefix(space_length(text));
      if (!text.starts_with("endraw")) continue;
      text.remove_prefix(6);
      text.remove_prefix(space_length(text));
      const size_t end = end_length(text, "%}");
      if (end == 0) continue;
      add_data(rest().substr(0, tag - position_), sign, true);
      text.remove_prefix(end);
      advance(rest().size() - text.size());
      return;
    }
    fail_at(line_, "raw without its end, expected '{{% endraw %}}'");
  }

  void read_tag(TokenType begin) {
    const bool variable = begin == TokenType::variable_begin;
    add(begin, variable ? "{{" : "{%");
    brackets_.clear();
    while (position_ < source_.size()) {
      const size_t end = brackets_.empty() ? end_length(rest(), variable ? "}}" : "%}") : 0;
      if (end > 0) {
        add(variable ? TokenType::variable_end : TokenType::block_end, variable ? "}}" : "%}");
        advance(end);
        return;
      }
      read_token();
    }
  }

  void read_token() {
    if (const size_t space = space_length(rest()); space > 0) {
      advance(space);
    } else if (is_digit(peek())) {
      read_number();
    } else if (peek() == '\'' || peek() == '"') {
      read_string();
    } else if (const size_t length = prefix_length(rest(), is_word); length > 0) {
      add(TokenType::name, std::string(rest().substr(0, length)));
      advance(length);
    } else {
      read_symbol();
    }
  }

  /// Digits with single underscores between them, as many as `accept` takes.
  template <class Accept>
  size_t digits_length(size_t from, Accept accept) const {
    size_t length = 0;
    while (accept(peek(from + length)) ||
           (length > 0 && peek(from + length) == '_' && accept(peek(from + length + 1))))
      ++length;
    return length;
  }

  void read_number() {
    const size_t whole = digits_length(0, is_digit);
    size_t length = whole;
    const bool after_dot = position_ > 0 && source_[position_ - 1] == '.';  // x.0.5 has no floats in it
    if (!after_dot && peek(length) == '.') {
      const size_t fraction = digits_length(length + 1, is_digit);
      if (fraction > 0) length += 1 + fraction;
    }
    if (!after_dot && (peek(length) == 'e' || peek(length) == 'E')) {
      const size_t sign = peek(length + 1) == '+' || peek(length + 1) == '-' ? 1 : 0;
      const size_t exponent = digits_length(length + 1 + sign, is_digit);
      if (exponent > 0) length += 1 + sign + exponent;
    }
    const bool real = length > whole;
    if (!real) length = integer_length(whole);
    std::string digits(rest().substr(0, length));
    std::erase(digits, '_');
    add(real ? TokenType::real : TokenType::integer, digits);
    advance(length);
  }

  /// 0b, 0o and 0x besides decimal numbers, which begin with 0 only if they are 0.
  size_t integer_length(size_t decimal) const {
    if (peek() != '0') return decimal;
    const char base = static_cast<char>(peek(1) | 0x20);
    const auto accept = [base](char c) {
      const char lower = static_cast<char>(c | 0x20);
      if (base == 'x') return is_digit(c) || (lower >= 'a' && lower <= 'f');
      return c >= '0' && c <= (base == 'b' ? '1' : '7');
    };
    if (base == 'b' || base == 'o' || base == 'x') {
      const size_t underscore = peek(2) == '_' ? 1 : 0;
      const size_t length = digits_length(2 + underscore, accept);
      if (length > 0) return 2 + underscore + length;
    }
    return digits_length(0, [](char c) { return c == '0'; });
  }

  void read_string() {
    const char quote = peek();
    size_t end = position_ + 1;
    while (end < source_.size() && source_[end] != quote)
      end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) fail_at(line_, "a string without its end, expected {}", quote);
    const std::string_view quoted = std::string_view(source_).substr(position_ + 1, end - position_ - 1);
    add(TokenType::string, unescape(quoted, line_));
    advance(end + 1 - position_);
  }

  void read_symbol() {
    const auto symbol = std::ranges::find_if(
        kSymbols, [this](std::string_view candidate) { return rest().starts_with(candidate); });
    if (symbol == kSymbols.end()) {
      const Utf8Unit unit = read_utf8(rest());
      fail_at(line_, "unexpected character '{}'", printable(rest().substr(0, unit.length)));
    }
    balance(symbol->front());
    add(TokenType::symbol, std::string(*symbol));
    advance(symbol->size());
  }

  /// Inside brackets the end of a tag is no end: {{ {'a': {}} }}.
  void balance(char c) {
    if (c == '(') brackets_ += ')';
    if (c == '[') brackets_ += ']';
    if (c == '{') brackets_ += '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets_.empty()) fail_at(line_, "unexpected '{}'", c);
    if (brackets_.back() != c) fail_at(line_, "unexpected '{}', expected '{}'", c, brackets_.back());
    brackets_.pop_back();
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::string brackets_;  // closing brackets that are awaited
  std::vector<Token> tokens_;
};

/// The character whose number `count` digits at the front of `text` write, moved out of it.
char32_t take_code(std::string_view& text, size_t count, int base, int line) {
  uint32_t code = 0;
  const std::string_view digits = text.substr(0, count);
  const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), code, base);
  if (digits.size() != count || parsed.ptr != digits.data() + count)
    fail_at(line, "a \\x, \\u or \\U escape with fewer than {} hexadecimal digits", count);
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail_at(line, "U+{:04X} is no character", code);
  text.remove_prefix(count);
  return code;
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

std::string describe(const Token& token) {
  if (token.type == TokenType::data) return "text";
  if (token.type == TokenType::end) return "the end of the template";
  const bool string = token.type == TokenType::string;
  return fmt::format("{}'{}'", string ? "the string " : "", printable(token.value, 40));
}

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
      const size_t digits = std::min(literal.find_first_not_of("01234567"), literal.size());
      append_utf8(text, take_code(literal, std::min(digits, size_t{3}), 8, line));
      continue;
    }
    literal.remove_prefix(2);
    if (known != std::string_view::npos) {
      text += kMeanings[known];
    } else if (name == 'x' || name == 'u' || name == 'U') {
      append_utf8(text, take_code(literal, name == 'x' ? 2 : name == 'u' ? 4 : 8, 16, line));
    } else if (name != '\n') {
      text += '\\';
      text += name;
    }
  }
  return text;
}

}  // namespace minfer::jinja
