#include "models/grammar/regex/regex_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {
namespace {

constexpr std::string_view kDigits = "0123456789";

bool is_single(const CodePoints& set) {
  return set.size() == 1 && set[0].first == set[0].last;
}

bool is_letter_or_digit(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

}  // namespace

std::string RegexReader::place() const {
  return fmt::format("regular expression, byte {}", position_);
}

char32_t RegexReader::take_pattern_character() {
  if (at_end()) refuse("ends where a character is expected");
  return take_code_point();
}

char32_t RegexReader::take_digits(int digits) {
  const auto value = take_hex(digits);
  if (!value) refuse(fmt::format("{} hexadecimal digits expected", digits));
  return *value;
}

/// Behind "\u". Two escapes may give the halves of a surrogate pair.
char32_t RegexReader::take_unicode_escape() {
  if (skip("{")) {
    const size_t end = std::min(text_.find('}', position_), text_.size());
    if (end == position_ || end - position_ > 8) refuse("\\u{...} of one to eight digits expected");
    const char32_t c = take_digits(static_cast<int>(end - position_));
    if (!skip("}") || c > kMaxCodePoint) refuse("\\u{...} of a code point expected");
    return c;
  }
  const char32_t c = take_digits(4);
  if (c < 0xd800 || c > 0xdbff || !skip("\\u")) return c;
  const char32_t low = take_digits(4);
  if (low < 0xdc00 || low > 0xdfff) refuse("the second half of a surrogate pair expected");
  return 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
}

/// Behind "\p" or "\P".
CodePoints RegexReader::take_property() {
  if (flags_.ignores_case) refuse("\\p is not supported without regard to case");
  if (!skip("{")) refuse("\\p{...} expected");
  const size_t end = text_.find('}', position_);
  if (end == std::string_view::npos) refuse("\\p{ is not closed: } expected");
  std::string_view name = text_.substr(position_, end - position_);
  for (const std::string_view prefix : {"General_Category=", "gc="}) {
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  }
  std::optional<CodePoints> set = unicode_property(name);
  if (!set)
    refuse(fmt::format("\\p{{{}}}: only general categories by their short names are supported", name));
  position_ = end + 1;
  return std::move(*set);
}

CodePoints RegexReader::single(char32_t c) const {
  if (flags_.ignores_case && c > 0x7f) refuse("without regard to case only ASCII is supported");
  return {{c, c}};
}

/// Behind a backslash.
CodePoints RegexReader::take_escape(bool in_class) {
  constexpr std::string_view kLetters = "tnvfr";
  constexpr std::string_view kMeanings = "\t\n\v\f\r";
  const char32_t c = take_pattern_character();
  if (c < 0x80) {
    const auto letter = static_cast<char>(c);
    if (const auto set = class_escape(letter)) return *set;
    if (const size_t i = kLetters.find(letter); i != std::string_view::npos)
      return single(static_cast<unsigned char>(kMeanings[i]));
  }
  switch (c) {
    case 'x':
      return single(take_digits(2));
    case 'u':
      return single(take_unicode_escape());
    case 'p':
      return take_property();
    case 'P':
      return complement(take_property());
    case 'c': {
      const char32_t letter = take_pattern_character();
      if (letter > 0x7f || !is_letter_or_digit(letter) || letter < 'A') refuse("\\c and a letter expected");
      return single(letter % 32);
    }
    case '0':
      if (kDigits.find(peek()) != std::string_view::npos && !at_end())
        refuse("octal escapes are not supported");
      return single(0);
    case 'b':
      if (in_class) return single('\b');
      refuse("\\b (word boundary) is not supported");
    case 'B':
      refuse("\\B (word boundary) is not supported");
    case 'k':
      refuse("\\k (back reference) is not supported");
    default:
      break;
  }
  if (c >= '1' && c <= '9') refuse("a back reference is not supported");
  if (is_letter_or_digit(c)) refuse(fmt::format("\\{} is no escape", static_cast<char>(c)));
  return single(c);
}

/// Behind the bracket that opens it.
CodePoints RegexReader::take_class() {
  const bool negated = skip("^");
  CodePoints set;
  while (!skip("]")) {
    if (at_end()) refuse("a class is not closed: ] expected");
    const auto take_member = [&] {
      if (skip("\\")) return take_escape(true);
      return single(take_pattern_character());
    };
    CodePoints member = take_member();
    const std::string_view behind = rest();
    if (is_single(member) && behind.size() > 1 && behind[0] == '-' && behind[1] != ']') {
      const size_t dash = position_++;
      const CodePoints last = take_member();
      if (!is_single(last)) {
        position_ = dash;  // as in [a-\d]: the dash is one of the characters
      } else if (last[0].first < member[0].first) {
        refuse("a range of a class ends before it begins");
      } else {
        member[0].last = last[0].first;
      }
    }
    set.insert(set.end(), member.begin(), member.end());
  }
  if (flags_.ignores_case) {
    set = with_both_cases(std::move(set));
    // Letters that some take for other cases of these.
    for (const auto& [letter, other] :
         {std::pair{U'k', U'\u212a'}, {U's', U'\u017f'}, {U'i', U'\u0130'}, {U'i', U'\u0131'}}) {
      if (negated && !intersection(set, {{letter, letter}}).empty()) set.push_back({other, other});
    }
  }
  return negated ? complement(std::move(set)) : merged_ranges(std::move(set));
}

CodePoints RegexReader::take_character() {
  if (skip(".")) return flags_.dot_is_any ? CodePoints{{0, kMaxCodePoint}} : complement(line_ends());
  if (skip("\\")) {
    CodePoints set = take_escape(false);
    return flags_.ignores_case ? with_both_cases(std::move(set)) : set;
  }
  if (skip("[")) return take_class();
  const char32_t c = take_pattern_character();
  if (c == '*' || c == '+' || c == '?') refuse("nothing to repeat");
  return flags_.ignores_case ? with_both_cases(single(c)) : single(c);
}

/// {m}, {m,} or {m,n}; what is none of them is left where it is.
std::optional<RegexReader::Count> RegexReader::take_braces() {
  constexpr size_t kLongest = 64;  // so that many braces that are not closed cost little
  const std::string_view braces = rest().substr(0, kLongest);
  if (!braces.starts_with('{')) return std::nullopt;
  const size_t end = braces.find('}');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view inside = braces.substr(1, end - 1);
  const size_t comma = inside.find(',');
  const auto is_number = [](std::string_view text) {
    return !text.empty() && text.find_first_not_of(kDigits) == std::string_view::npos;
  };
  const std::string_view low = inside.substr(0, comma);
  const std::string_view high = comma == std::string_view::npos ? low : inside.substr(comma + 1);
  if (!is_number(low) || !(high.empty() || is_number(high))) return std::nullopt;
  const auto number = [&](std::string_view text) {
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
      refuse("a count is too large");
    return value;
  };
  const Count count{.min = number(low), .max = high.empty() ? -1 : number(high)};
  if (count.max >= 0 && count.max < count.min) refuse("a count {m,n} ends before it begins");
  position_ += end + 1;
  return count;
}

std::optional<RegexReader::Count> RegexReader::take_quantifier() {
  std::optional<Count> count;
  if (skip("*")) {
    count = Count{.min = 0, .max = -1};
  } else if (skip("+")) {
    count = Count{.min = 1, .max = -1};
  } else if (skip("?")) {
    count = Count{.min = 0, .max = 1};
  } else {
    count = take_braces();
  }
  if (count) skip("?");
  return count;
}

void RegexReader::skip_group_name() {
  const size_t end = text_.find('>', position_);
  if (end == std::string_view::npos || end == position_) refuse("the name of a group, then >, expected");
  position_ = end + 1;
}

}  // namespace minfer
