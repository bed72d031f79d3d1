#include "models/chat/jinja/value/number_text.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "models/chat/jinja/errors.h"
#include "models/chat/jinja/value/unicode.h"

namespace minfer::jinja {
namespace {

/// Without white space around it and underscores between digits; nothing if an underscore stands elsewhere.
std::optional<std::string> clean(std::string_view text) {
  size_t first = text.size();
  size_t end = 0;
  for_each_character(text, [&](char32_t c, size_t begin, size_t length) {
    if (is_space(c)) return;
    first = std::min(first, begin);
    end = begin + length;
  });
  std::string cleaned;
  for (size_t i = first; i < end; ++i) {
    const auto alnum = [&](size_t at) {
      return at < end && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_') {
      cleaned += text[i];
    } else if (i == first || !alnum(i - 1) || !alnum(i + 1)) {
      return std::nullopt;
    }
  }
  return cleaned;
}

}  // namespace

std::optional<int64_t> parse_integer(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) fail<TemplateError>("int: base {}, expected 0 or 2 to 36", base);
  const std::optional<std::string> cleaned = clean(text);
  if (!cleaned || cleaned->empty()) return std::nullopt;
  std::string_view digits = *cleaned;
  const bool negative = digits.front() == '-';
  if (negative || digits.front() == '+') digits.remove_prefix(1);
  const char letter = digits.size() > 2 && digits[0] == '0' ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
  if (prefix != 0 && (base == 0 || base == prefix)) {
    digits.remove_prefix(2);
    base = prefix;
  }
  if (digits.empty() || digits.front() == '-') return std::nullopt;
  const std::string signed_digits = fmt::format("{}{}", negative ? "-" : "", digits);
  int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto parsed =
      std::from_chars(signed_digits.data(), end, value, base == 0 ? 10 : static_cast<int>(base));
  if (parsed.ptr != end || parsed.ec == std::errc::invalid_argument) return std::nullopt;
  if (parsed.ec != std::errc()) fail<TemplateError>("int: a number that does not fit into 64 bits");
  return value;
}

std::optional<double> parse_real(std::string_view text) {
  const std::optional<std::string> cleaned = clean(text);
  // strtod would also read hexadecimal numbers and nan(...).
  if (!cleaned || cleaned->empty() || cleaned->find_first_of("xX(") != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(cleaned->c_str(), &end);
  if (end != cleaned->c_str() + cleaned->size()) return std::nullopt;
  return value;
}

}  // namespace minfer::jinja
