#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace minfer::jinja {

/// A number as Python's int() and float() read it: white space around it, single underscores between digits.
/// Nothing if the text is none; throws TemplateError if an int does not fit into 64 bits.
std::optional<int64_t> parse_integer(std::string_view text, int64_t base);
std::optional<double> parse_real(std::string_view text);

}  // namespace minfer::jinja
