#include "models/chat/jinja/value/unicode.h"

#include <algorithm>
#include <array>
#include <utility>

#include <utf8proc.h>

namespace minfer::jinja {
namespace {

int32_t code(char32_t c) {
  return static_cast<int32_t>(c);
}

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(code(c));
}

char32_t simple_upper(char32_t c) {
  return static_cast<char32_t>(utf8proc_toupper(code(c)));
}

/// Unicode's case folding: several characters for those whose upper or title case is several (SpecialCasing.txt).
std::u32string folded(char32_t c) {
  std::array<utf8proc_int32_t, 4> characters{};
  int unused = 0;
  const auto count =
      utf8proc_decompose_char(code(c), characters.data(), std::ssize(characters), UTF8PROC_CASEFOLD, &unused);
  return {characters.begin(), characters.begin() + count};
}

std::u32string upper_of(char32_t c) {
  if (c < 0x80) return {static_cast<char32_t>(c >= 'a' && c <= 'z' ? c - 32 : c)};
  std::u32string upper = category(c) == UTF8PROC_CATEGORY_LU ? std::u32string() : folded(c);
  if (upper.size() < 2) return {simple_upper(c)};
  std::ranges::transform(upper, upper.begin(), simple_upper);
  return upper;
}

std::u32string title_of(char32_t c) {
  constexpr char32_t kIota = 0x3B9, kIotaBelow = 0x345;  // the latter stays below a capital
  const auto simple = static_cast<char32_t>(utf8proc_totitle(code(c)));
  std::u32string title =
      category(c) == UTF8PROC_CATEGORY_LU || is_title(simple) ? std::u32string() : folded(c);
  if (title.size() < 2) return {simple};
  const auto first = std::ranges::find_if(title, [](char32_t f) { return simple_upper(f) != f; });
  if (first != title.end()) *first = simple_upper(*first);
  if (title.back() == kIota) title.back() = kIotaBelow;
  return title;
}

/// Characters that do not count when the word's end is looked for: marks, formats, modifiers and Unicode's
/// Word_Break MidLetter, MidNumLet and Single_Quote.
bool is_case_ignorable(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of == UTF8PROC_CATEGORY_MN || of == UTF8PROC_CATEGORY_ME || of == UTF8PROC_CATEGORY_CF ||
         of == UTF8PROC_CATEGORY_LM || of == UTF8PROC_CATEGORY_SK ||
         std::u32string_view(
             U"'.:\u00B7\u0387\u055F\u05F4\u2018\u2019\u2024\u2027\uFE13\uFE52\uFE55\uFF07\uFF0E\uFF1A")
                 .find(c) != std::u32string_view::npos;
}

/// A capital sigma becomes the final form at the end of a word.
bool is_final_sigma(std::u32string_view text, size_t position) {
  size_t before = position;
  while (before > 0 && is_case_ignorable(text[before - 1]))
    --before;
  if (before == 0 || !is_cased(text[before - 1])) return false;
  size_t after = position + 1;
  while (after < text.size() && is_case_ignorable(text[after]))
    ++after;
  return after == text.size() || !is_cased(text[after]);
}

std::u32string lower_of(std::u32string_view text, size_t position) {
  const char32_t c = text[position];
  if (c < 0x80) return {static_cast<char32_t>(c >= 'A' && c <= 'Z' ? c + 32 : c)};
  if (c == 0x130) return U"i\u0307";
  if (c == 0x3A3) return is_final_sigma(text, position) ? U"\u03C2" : U"\u03C3";
  return {static_cast<char32_t>(utf8proc_tolower(code(c)))};
}

/// Every character replaced by what `map(characters, position)` gives; what is not UTF-8 stays.
template <class Map>
Text map_characters(const Text& text, Map map) {
  std::basic_string<char32_t, std::char_traits<char32_t>, Counted<char32_t>> characters;
  characters.reserve(text.size());
  for_each_character(text.bytes(), [&](char32_t c, size_t, size_t) { characters += c; });
  Text mapped;
  mapped.set_markup(text.is_markup());
  std::string bytes;
  size_t position = 0;
  for_each_character(text.bytes(), [&](char32_t c, size_t begin, size_t length) {
    const std::u32string replacement = map(characters, position++);
    if (replacement.size() == 1 && replacement.front() == c) {
      mapped.append(text, begin, length);
      return;
    }
    bytes.clear();
    for (const char32_t r : replacement)
      append_utf8(bytes, r);
    mapped.append(bytes, text.origin_at(begin));
  });
  return mapped;
}

}  // namespace

size_t count_characters(std::string_view bytes) {
  if (is_ascii(bytes)) return bytes.size();
  size_t count = 0;
  for_each_character(bytes, [&](char32_t, size_t, size_t) { ++count; });
  return count;
}

bool is_ascii(std::string_view bytes) {
  Rendering::step(1 + bytes.size() / 64);
  return std::ranges::all_of(bytes, [](char byte) { return (byte & 0x80) == 0; });
}

void append_utf8(std::string& bytes, char32_t character) {
  std::array<utf8proc_uint8_t, 4> encoded{};
  const auto length = utf8proc_encode_char(code(character), encoded.data());
  bytes.append(reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(length));
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || (category(c) >= UTF8PROC_CATEGORY_ZS && category(c) <= UTF8PROC_CATEGORY_ZP);
}

bool is_line_end(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  const utf8proc_category_t of =
      category(c);  // in the order of letters, marks, numbers, P, S, separators, others
  return of != UTF8PROC_CATEGORY_CN && of < UTF8PROC_CATEGORY_ZS;
}

bool is_letter(char32_t c) {
  const utf8proc_category_t of = category(c);
  return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  // Digits that are not decimal: superscripts, circled ones and the like (Numeric_Type=Digit).
  constexpr std::array<std::pair<char32_t, char32_t>, 20> kOthers{
      {{0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
       {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
       {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
       {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}}};
  return is_decimal(c) || std::ranges::any_of(kOthers, [c](const auto& range) {
           return c >= range.first && c <= range.second;
         });
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_word(char32_t c) {
  const utf8proc_category_t of = category(c);
  return c == '_' || is_letter(c) || (of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO);
}

bool is_upper(char32_t c) {
  return utf8proc_isupper(code(c)) != 0;
}

bool is_lower(char32_t c) {
  return utf8proc_islower(code(c)) != 0;
}

bool is_title(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LT;
}

bool is_cased(char32_t c) {
  return is_upper(c) || is_lower(c) || is_title(c);
}

Text to_upper(const Text& text) {
  if (is_ascii(text.bytes()))
    return text.map_bytes([](char c) { return static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c); });
  return map_characters(text, [](std::u32string_view all, size_t i) { return upper_of(all[i]); });
}

Text to_lower(const Text& text) {
  if (is_ascii(text.bytes()))
    return text.map_bytes([](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return map_characters(text, lower_of);
}

Text to_capitalized(const Text& text) {
  return map_characters(
      text, [](std::u32string_view all, size_t i) { return i == 0 ? title_of(all[0]) : lower_of(all, i); });
}

Text to_title(const Text& text) {
  return map_characters(text, [](std::u32string_view all, size_t i) {
    return i > 0 && is_cased(all[i - 1]) ? lower_of(all, i) : title_of(all[i]);
  });
}

Text to_swapped(const Text& text) {
  return map_characters(text, [](std::u32string_view all, size_t i) {
    return is_upper(all[i]) ? lower_of(all, i) : is_lower(all[i]) ? upper_of(all[i]) : std::u32string{all[i]};
  });
}

}  // namespace minfer::jinja
