#include "models/chat/jinja/value/number_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/errors.h"
#include "models/chat/jinja/value/print.h"
#include "models/chat/jinja/value/unicode.h"
#include "models/gguf/printable.h"

namespace minfer::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;
constexpr std::string_view kAligns = "<>^=";

/// Digits of a number without its sign, and what stands in front of them.
struct Digits {
  bool negative;
  std::string prefix;
  std::string digits;
};

std::string upper(std::string text) {
  for (char& c : text)
    c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

[[noreturn]] void fail_type(const FormatSpec& spec, std::string_view value) {
  fail<TemplateError>("format type '{}' for a {}", printable(std::string_view(&spec.type, 1)), value);
}

Digits integer_digits(int64_t value, const FormatSpec& spec) {
  const uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  Digits result{value < 0, "", ""};
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n':
      result.digits = fmt::format("{}", magnitude);
      break;
    case 'x':
    case 'X':
      result.digits = fmt::format("{:x}", magnitude);
      break;
    case 'o':
      result.digits = fmt::format("{:o}", magnitude);
      break;
    case 'b':
      result.digits = fmt::format("{:b}", magnitude);
      break;
    default:
      fail_type(spec, "int");
  }
  if (spec.alternate && spec.type != '\0' && spec.type != 'd') result.prefix = fmt::format("0{}", spec.type);
  if (spec.type == 'X') result.digits = upper(result.digits);
  return result;
}

Digits real_digits(double value, const FormatSpec& spec) {
  Digits result{std::signbit(value) && !std::isnan(value), "", ""};
  const double magnitude = std::abs(value);
  const int64_t precision = spec.precision.value_or(6);
  switch (spec.type) {
    case '\0':
      result.digits = spec.precision ? fmt::format("{:.{}g}", magnitude, std::max<int64_t>(precision, 1))
                                     : format_real(magnitude);
      if (std::isfinite(value) && result.digits.find_first_of(".e") == std::string::npos)
        result.digits += ".0";
      break;
    case 'f':
    case 'F':
      result.digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case 'e':
    case 'E':
      result.digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'g':
    case 'G':
      result.digits = fmt::format("{:.{}g}", magnitude, std::max<int64_t>(precision, 1));
      break;
    case '%':
      result.digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    default:
      fail_type(spec, "float");
  }
  if (spec.type == 'F' || spec.type == 'E' || spec.type == 'G') result.digits = upper(result.digits);
  return result;
}

void group(std::string& digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3; at -= 3)
    digits.insert(at - 3, 1, separator);
}

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

FormatSpec parse_format_spec(std::string_view text) {
  FormatSpec spec;
  const std::string_view whole = text;
  const auto take = [&text](char c) {
    if (!text.starts_with(c)) return false;
    text.remove_prefix(1);
    return true;
  };
  const auto take_number = [&]() -> std::optional<int64_t> {
    int64_t number = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
    if (parsed.ptr == text.data() || text.starts_with('-')) return std::nullopt;
    if (parsed.ec != std::errc())
      fail<TemplateError>("format specification '{}': a number too large", printable(whole));
    text.remove_prefix(static_cast<size_t>(parsed.ptr - text.data()));
    return number;
  };
  const size_t first = text.empty() ? 0 : read_utf8(text).length;
  if (first < text.size() && kAligns.find(text[first]) != std::string_view::npos) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    text.remove_prefix(first + 1);
  } else if (!text.empty() && kAligns.find(text.front()) != std::string_view::npos) {
    spec.align = text.front();
    text.remove_prefix(1);
  }
  for (const char sign : {'+', '-', ' '})
    if (take(sign)) spec.sign = sign;
  spec.alternate = take('#');
  if (take('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = take_number().value_or(0);
  for (const char separator : {',', '_'})
    if (take(separator)) spec.grouping = separator;
  if (take('.')) {
    spec.precision = take_number();
    if (!spec.precision)
      fail<TemplateError>("format specification '{}': no digits behind '.'", printable(whole));
  }
  if (text.size() > 1) fail<TemplateError>("'{}' is no format specification", printable(whole));
  if (!text.empty()) spec.type = text.front();
  return spec;
}

Text format_number(const Value& value, const FormatSpec& spec) {
  if (spec.precision.value_or(0) > kMaxPrecision)
    fail<TemplateError>("a number with {} digits, expected at most {}", *spec.precision, kMaxPrecision);
  const bool as_real =
      value.real() != nullptr || std::string_view("fFeEgG%").find(spec.type) != std::string_view::npos;
  Digits number = as_real && (spec.type != '\0' || value.real() != nullptr)
                      ? real_digits(*value.number(), spec)
                      : integer_digits(*value.integer(), spec);
  if (spec.grouping != '\0') group(number.digits, spec.grouping);
  const std::string_view sign = number.negative    ? "-"
                                : spec.sign == '-' ? ""
                                                   : std::string_view(&spec.sign, 1);
  const std::string front = fmt::format("{}{}", sign, number.prefix);
  Text out;
  if (spec.align == '=') {
    out.append(front);
    out.append(pad(Text(number.digits), spec.width - static_cast<int64_t>(front.size()), Text(spec.fill),
                   Align::right));
    return out;
  }
  const Align align = spec.align == '<' ? Align::left : spec.align == '^' ? Align::center : Align::right;
  return pad(Text(front + number.digits), spec.width, Text(spec.fill), align);
}

Text format_string(const Text& text, const FormatSpec& spec) {
  if ((spec.type != '\0' && spec.type != 's') || spec.align == '=') fail_type(spec, "text");
  size_t end = text.size();
  if (spec.precision) {
    int64_t left = *spec.precision;
    end = 0;
    for_each_character(text.bytes(), [&](char32_t, size_t begin, size_t length) {
      if (left-- > 0) end = begin + length;
    });
  }
  const Align align = spec.align == '>' ? Align::right : spec.align == '^' ? Align::center : Align::left;
  return pad(text.substr(0, end), spec.width, Text(spec.fill), align);
}

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
