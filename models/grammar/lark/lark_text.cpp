#include "models/grammar/lark/lark_text.h"

#include <unordered_map>

#include "kernels/base/error.h"
#include "models/grammar/code_points.h"
#include "models/tokenizer/utf8.h"

namespace minfer {

std::string LarkText::found() const {
  if (at_end()) return "the end";
  if (peek() == '\n') return "the end of the line";
  return fmt::format("\"{}\"", rest().substr(0, rest().find('\n')).substr(0, 20));
}

void LarkText::refuse_found(std::string_view expected) const {
  refuse(fmt::format("{} expected, found {}", expected, replace_invalid_utf8(found())));
}

void LarkText::enter(size_t begin, size_t end) {
  position_ = begin;
  end_ = end;
}

std::string LarkText::take_name() {
  const std::string_view name = take_while(is_name_byte);
  if (name.empty()) refuse_found("a name");
  return std::string(name);
}

int64_t LarkText::take_repetitions() {
  const auto count = take_number();
  if (!count) refuse_found("a count, of 0 or more,");
  return *count;
}

std::vector<char32_t> LarkText::take_characters() {
  skip("\"");
  std::vector<char32_t> characters;
  while (!skip("\"")) {
    if (at_end() || peek() == '\n') refuse_found("\" at the end of a string");
    characters.push_back(skip("\\") ? take_escape() : take_code_point());
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
  const auto code_point = take_hex(digits);
  const bool is_surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
  if (!code_point || *code_point > kMaxCodePoint || is_surrogate)
    refuse_found(fmt::format("a code point of {} hexadecimal digits", digits));
  return *code_point;
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
