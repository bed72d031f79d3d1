#include "models/grammar/lark/lark_text.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "kernels/base/error.h"
#include "models/grammar/regex/code_points.h"
#include "models/tokenizer/utf8.h"

namespace minfer {

std::string LarkText::found() const {
  if (at_end()) return "the end";
  if (peek() == '\n') return "the end of the line";
  return fmt::format(
      "\"{}\"",
      text_.substr(position_, std::min(text_.find('\n', position_), end_) - position_).substr(0, 20));
}

void LarkText::refuse(std::string_view what) const {
  const auto line =
      std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(std::min(position_, text_.size())),
                 '\n') +
      1;
  fail<GrammarError>("Lark, line {}: {}", line, what);
}

void LarkText::refuse_found(std::string_view expected) const {
  refuse(fmt::format("{} expected, found {}", expected, replace_invalid_utf8(found())));
}

bool LarkText::skip(std::string_view expected) {
  if (at_end() || !text_.substr(position_, end_ - position_).starts_with(expected)) return false;
  position_ += expected.size();
  return true;
}

void LarkText::enter(size_t begin, size_t end) {
  position_ = begin;
  end_ = end;
}

void LarkText::skip_space(bool over_lines) {
  for (; !at_end(); ++position_) {
    if (peek() == '#' || text_.substr(position_, 2) == "//")
      position_ = std::min(text_.find('\n', position_), end_);
    if (at_end() || (peek() == '\n' && !over_lines)) return;
    if (peek() != '\n' && peek() != ' ' && peek() != '\t' && peek() != '\r') return;
  }
}

std::string LarkText::take_name() {
  const size_t begin = position_;
  while (!at_end() && is_name_byte(peek()))
    ++position_;
  if (position_ == begin) refuse_found("a name");
  return std::string(text_.substr(begin, position_ - begin));
}

int64_t LarkText::take_number() {
  int64_t value = 0;
  const std::string_view rest = text_.substr(position_, end_ - position_);
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc() || value < 0) refuse_found("a count, of 0 or more,");
  position_ += static_cast<size_t>(end - rest.data());
  return value;
}

std::vector<char32_t> LarkText::take_characters() {
  skip("\"");
  std::vector<char32_t> characters;
  while (!skip("\"")) {
    if (at_end() || peek() == '\n') refuse_found("\" at the end of a string");
    if (skip("\\")) {
      characters.push_back(take_escape());
      continue;
    }
    const Utf8Unit unit = read_utf8(text_.substr(position_, end_ - position_));
    if (unit.kind != Utf8Unit::Kind::character) refuse("not UTF-8");
    position_ += unit.length;
    characters.push_back(unit.character);
  }
  return characters;
}

char32_t LarkText::take_escape() {
  constexpr std::string_view kLetters = "nrtfvb\\\"/";
  constexpr std::string_view kMeanings = "\n\r\t\f\v\b\\\"/";
  const char c = peek();
  const size_t known = at_end() ? std::string_view::npos : kLetters.find(c);
  const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
  if (known == std::string_view::npos && digits == 0)
    refuse_found("an escape (\\n \\r \\t \\f \\v \\b \\\\ \\\" \\x \\u \\U)");
  ++position_;
  if (known != std::string_view::npos) return static_cast<unsigned char>(kMeanings[known]);
  const std::string_view hex =
      text_.substr(position_, std::min(static_cast<size_t>(digits), end_ - position_));
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  const bool is_surrogate = value >= 0xd800 && value <= 0xdfff;
  if (error != std::errc() || end != hex.data() + digits || value > kMaxCodePoint || is_surrogate)
    refuse_found(fmt::format("a code point of {} hexadecimal digits", digits));
  position_ += hex.size();
  return value;
}

std::string_view common_terminal(std::string_view name) {
  static const std::unordered_map<std::string_view, std::string_view> known{
      {"DIGIT", "[0-9]"},
      {"HEXDIGIT", "[0-9A-Fa-f]"},
      {"INT", "[0-9]+"},
      {"SIGNED_INT", "[+-]?[0-9]+"},
      {"DECIMAL", R"([0-9]+\.[0-9]*|\.[0-9]+)"},
      {"FLOAT", R"([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
      {"SIGNED_FLOAT", R"([+-]?([0-9]+[eE][+-]?[0-9]+|([0-9]+\.[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?))"},
      {"NUMBER", R"(([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
      {"SIGNED_NUMBER", R"([+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?)"},
      {"ESCAPED_STRING", R"("([^"\\\n]|\\[^\n])*")"},
      {"LCASE_LETTER", "[a-z]"},
      {"UCASE_LETTER", "[A-Z]"},
      {"LETTER", "[A-Za-z]"},
      {"WORD", "[A-Za-z]+"},
      {"CNAME", "[_A-Za-z][_A-Za-z0-9]*"},
      {"WS_INLINE", R"([ \t]+)"},
      {"WS", R"([ \t\f\r\n]+)"},
      {"CR", R"(\r)"},
      {"LF", R"(\n)"},
      {"NEWLINE", R"((\r?\n)+)"},
      {"SH_COMMENT", R"(#[^\n]*)"},
      {"CPP_COMMENT", R"(//[^\n]*)"},
      {"C_COMMENT", R"(/\*([^*]|\*+[^*/])*\*+/)"},
      {"SQL_COMMENT", R"(--[^\n]*)"},
  };
  const auto found = known.find(name);
  return found == known.end() ? std::string_view() : found->second;
}

}  // namespace minfer
