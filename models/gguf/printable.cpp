#include "models/gguf/printable.h"

#include <iterator>

#include <fmt/format.h>
#include <utf8proc.h>

namespace minfer {

std::string printable(std::string_view text, size_t max_bytes) {
  std::string shown;
  size_t at = 0;
  while (at < text.size() && at < max_bytes) {
    const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at;
    utf8proc_int32_t codepoint = 0;
    const utf8proc_ssize_t length =
        utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size() - at), &codepoint);
    if (length <= 0) {
      fmt::format_to(std::back_inserter(shown), "\\x{:02x}", *bytes);
      ++at;
      continue;
    }
    // Control and format characters: the latter include the overrides that reverse the direction of text.
    const auto category = utf8proc_category(codepoint);
    if (codepoint == '\n') {
      shown += "\\n";
    } else if (category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF) {
      fmt::format_to(std::back_inserter(shown), "\\u{{{:x}}}", codepoint);
    } else {
      shown += text.substr(at, static_cast<size_t>(length));
    }
    at += static_cast<size_t>(length);
  }
  if (at < text.size()) shown += "...";
  return shown;
}

}  // namespace minfer
