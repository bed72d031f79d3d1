#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace minfer {

/// Text from a file, made safe for messages and tables: control characters and invalid UTF-8 become escapes,
/// so that a file cannot drive the terminal. A text longer than `max_bytes` ends in "...".
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace minfer
