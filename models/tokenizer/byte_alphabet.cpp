#include "models/tokenizer/byte_alphabet.h"

#include <array>

#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr char32_t kAlphabetEnd = 0x144;  // 68 characters from U+0100

/// The byte of each character; -1: none.
constexpr std::array<int16_t, kAlphabetEnd> make_alphabet() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  bytes.fill(-1);
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    bytes[stands_for_itself(byte) ? static_cast<char32_t>(byte) : next++] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, kAlphabetEnd> kAlphabet = make_alphabet();

}  // namespace

std::optional<std::string> bytes_from_alphabet(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    const Utf8Unit unit = read_utf8(text);
    const bool known = unit.kind == Utf8Unit::Kind::character && unit.character < kAlphabetEnd &&
                       kAlphabet[unit.character] >= 0;
    if (!known) return std::nullopt;
    bytes += static_cast<char>(kAlphabet[unit.character]);
    text.remove_prefix(unit.length);
  }
  return bytes;
}

std::string escape_spaces(std::string_view text) {
  std::string escaped;
  escaped.reserve(text.size() * 2);
  for (const char c : text) {
    if (c == ' ') {
      escaped += kEscapedSpace;
    } else {
      escaped += c;
    }
  }
  return escaped;
}

std::string unescape_spaces(std::string_view text) {
  std::string unescaped;
  size_t begin = 0;
  while (true) {
    const size_t found = text.find(kEscapedSpace, begin);
    unescaped += text.substr(begin, found - begin);
    if (found == std::string_view::npos) return unescaped;
    unescaped += ' ';
    begin = found + kEscapedSpace.size();
  }
}

}  // namespace minfer
