#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "models/chat/jinja/value/object.h"

namespace minfer::jinja {

/// How a value is written: Python's format specification
/// "[[fill]align][sign][#][0][width][,][.precision][type]".
struct FormatSpec {
  std::string_view fill = " ";  ///< of the text that was parsed, or a literal
  char align = '\0';            ///< < > ^ =, or 0 for the type's own
  char sign = '-';
  bool alternate = false;
  char grouping = '\0';  ///< ',' or '_' between thousands
  int64_t width = 0;
  std::optional<int64_t> precision;
  char type = '\0';
};

/// Throws TemplateError if `text` is no specification.
FormatSpec parse_format_spec(std::string_view text);

/// An int, a bool or a float by the specification. Throws TemplateError if the type does not fit the value.
Text format_number(const Value& value, const FormatSpec& spec);
Text format_string(const Text& text, const FormatSpec& spec);

/// A number as Python's int() and float() read it: white space around it, single underscores between digits.
/// Nothing if the text is none; throws TemplateError if an int does not fit into 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
std::optional<double> parse_real(std::string_view text);

/// The int that `text` is if it has nothing but digits, else the text: what a path of attributes names.
Value index_or_name(std::string_view text);

/// `format % arguments`, as C's printf with Python's additions.
Value format_percent(const Text& format, const Value& arguments);
/// `format.format(arguments)`, Python's str.format.
Value format_braces(const Text& format, const Arguments& arguments);

}  // namespace minfer::jinja
