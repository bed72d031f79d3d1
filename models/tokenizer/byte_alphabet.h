#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minfer {

// GPT-2's alphabet: byte-level BPE files spell each byte as one printable character. Printable Latin-1 bytes
// stand for themselves, the other 68 for U+0100 and following, in order (a space is U+0120).

/// The bytes that `text` spells; nullopt if a character is outside the alphabet or the text is not UTF-8.
std::optional<std::string> bytes_from_alphabet(std::string_view text);

/// U+2581, which stands for a space in SentencePiece's vocabularies and in those made from them.
inline constexpr std::string_view kEscapedSpace = "\xE2\x96\x81";

std::string escape_spaces(std::string_view text);
std::string unescape_spaces(std::string_view text);

}  // namespace minfer
