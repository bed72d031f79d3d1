#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace minfer {

/// Text from a file as a message or a table may show it: control characters and invalid UTF-8 become escapes,
/// so that a file cannot drive the terminal, and what is longer than `max_bytes` ends in "...".
std::string printable(std::string_view text, size_t max_bytes = 80);

}  // namespace minfer
