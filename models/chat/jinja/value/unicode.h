#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "models/chat/jinja/value/text.h"
#include "models/tokenizer/utf8.h"

namespace minfer::jinja {

/// Characters as Python counts them; a unit of invalid UTF-8 counts as one.
size_t count_characters(std::string_view bytes);
bool is_ascii(std::string_view bytes);
void append_utf8(std::string& bytes, char32_t character);

bool is_space(char32_t c);      ///< str.isspace()
bool is_line_end(char32_t c);   ///< where str.splitlines() cuts
bool is_printable(char32_t c);  ///< shown as it is by repr()
bool is_letter(char32_t c);     ///< str.isalpha()
bool is_digit(char32_t c);      ///< str.isdigit()
bool is_decimal(char32_t c);    ///< str.isdecimal()
bool is_word(char32_t c);       ///< \w of a regular expression
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);

/// Python's str.upper(), lower(), capitalize(), title() and swapcase(), with the mappings of one character to
/// several. Every byte keeps the origin of the character it comes from.
Text to_upper(const Text& text);
Text to_lower(const Text& text);
Text to_capitalized(const Text& text);
Text to_title(const Text& text);
Text to_swapped(const Text& text);

/// Calls `visit(character, begin, length)` for each character of `bytes`, U+FFFD for what is not UTF-8. Charges the rendering for that.
template <class Visit>
void for_each_character(std::string_view bytes, Visit visit) {
  Rendering::step(1 + bytes.size() / 16);
  for (size_t begin = 0; begin < bytes.size();) {
    const Utf8Unit unit = read_utf8(bytes.substr(begin));
    visit(unit.character, begin, unit.length);
    begin += unit.length;
  }
}

/// Where the characters at the ends of `bytes` that `is_stripped` takes end and begin; empty at the front if it takes all.
template <class IsStripped>
std::string_view strip_ends(std::string_view bytes, IsStripped is_stripped) {
  size_t first = bytes.size();
  size_t end = 0;
  for_each_character(bytes, [&](char32_t c, size_t begin, size_t length) {
    if (is_stripped(c)) return;
    first = std::min(first, begin);
    end = begin + length;
  });
  return end == 0 ? bytes.substr(0, 0) : bytes.substr(first, end - first);
}

}  // namespace minfer::jinja
