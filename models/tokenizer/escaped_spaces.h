#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// U+2581, which stands for a space in SentencePiece's vocabularies and in those made from them.
inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";

std::string escape_spaces(std::string_view text);
std::string unescape_spaces(std::string_view text);

}  // namespace minfer
