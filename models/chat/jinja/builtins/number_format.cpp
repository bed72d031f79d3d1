#include "models/chat/jinja/builtins/number_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/value/errors.h"
#include "models/chat/jinja/value/print.h"
#include "models/chat/jinja/value/unicode.h"
#include "models/gguf/printable.h"

namespace minfer::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;
constexpr std::string_view kAligns = "<>^=";

[[noreturn]] void fail_type(const FormatSpec& spec, std::string_view value) {
  fail<TemplateError>("format type '{}' for a {}", printable(std::string_view(&spec.type, 1)), value);
}

std::string integer_digits(uint64_t magnitude, const FormatSpec& spec) {
  if (std::string_view("dnxXob\0", 7).find(spec.type) == std::string_view::npos) fail_type(spec, "int");
  const char type = spec.type == '\0' || spec.type == 'n' ? 'd' : spec.type;
  return fmt::format(fmt::runtime(fmt::format("{{:{}}}", type)), magnitude);
}

std::string real_digits(double magnitude, const FormatSpec& spec) {
  if (std::string_view("fFeEgG%\0", 8).find(spec.type) == std::string_view::npos) fail_type(spec, "float");
  std::string digits;
  if (spec.type == '\0' && !spec.precision) {
    digits = format_real(magnitude);
  } else {
    const char type = spec.type == '\0' ? 'g' : spec.type == '%' ? 'f' : spec.type;
    const int64_t least = type == 'g' || type == 'G' ? 1 : 0;
    digits = fmt::format(fmt::runtime(fmt::format("{{:.{{}}{}}}", type)),
                         spec.type == '%' ? magnitude * 100 : magnitude,
                         std::max(spec.precision.value_or(6), least));
  }
  const bool whole = digits.find_first_of(".e") == std::string::npos;
  if (spec.type == '\0' && std::isfinite(magnitude) && whole) digits += ".0";
  return spec.type == '%' ? digits + "%" : digits;
}

void group(std::string& digits, char separator) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3; at -= 3)
    digits.insert(at - 3, 1, separator);
}

/// Without white space around it and underscores between digits; nothing if an underscore stands elsewhere.
std::optional<std::string> clean(std::string_view text) {
  text = strip_ends(text, is_space);
  std::string cleaned;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto alnum = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_') {
      cleaned += text[i];
    } else if (i == 0 || !alnum(i - 1) || !alnum(i + 1)) {
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
  const double real = *value.number();
  const int64_t integer = value.integer().value_or(0);
  const bool negative = as_real ? std::signbit(real) && !std::isnan(real) : integer < 0;
  const auto magnitude = static_cast<uint64_t>(integer);
  std::string digits = as_real ? real_digits(std::abs(real), spec)
                               : integer_digits(negative ? 0 - magnitude : magnitude, spec);
  if (spec.grouping != '\0') group(digits, spec.grouping);
  std::string front(negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign));
  const bool has_prefix = !as_real && spec.alternate && spec.type != '\0' && spec.type != 'd';
  if (has_prefix) front += fmt::format("0{}", spec.type);
  Text out;
  if (spec.align == '=') {
    out.append(front);
    out.append(
        pad(Text(digits), spec.width - static_cast<int64_t>(front.size()), Text(spec.fill), Align::right));
    return out;
  }
  const Align align = spec.align == '<' ? Align::left : spec.align == '^' ? Align::center : Align::right;
  return pad(Text(front + digits), spec.width, Text(spec.fill), align);
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

Value index_or_name(std::string_view text) {
  const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
  return digits ? Value(parse_integer(text, 10).value_or(0)) : make_text(text);
}

}  // namespace minfer::jinja
