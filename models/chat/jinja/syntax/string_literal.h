#pragma once

#include <string>
#include <string_view>

namespace minfer::jinja {

/// What stands between the quotes of a string literal of `line` with its escapes resolved as Python does; an
/// unknown escape stays as it is. Throws TemplateError for an incomplete one and for half of a surrogate
/// pair.
std::string unescape(std::string_view literal, int line);

}  // namespace minfer::jinja
