#pragma once

#include <string_view>

namespace minfer {

/// Whether a keyword of JSON Schema says nothing about which values are valid.
bool is_annotation(std::string_view keyword);

}  // namespace minfer
