#include "models/tokenizer/utf8.h"

#include <cstdint>

namespace minfer {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Lead {
  size_t length;       // bytes of the character; 0: not a lead byte
  uint8_t second_min;  // range of the second byte, which excludes overlong forms, surrogates and > U+10FFFF
  uint8_t second_max;  // (Unicode standard, table 3-7)
  uint8_t payload_mask = 0x7F;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF, 0x1F};
  if (byte == 0xE0) return {3, 0xA0, 0xBF, 0x0F};
  if (byte == 0xED) return {3, 0x80, 0x9F, 0x0F};
  if (byte < 0xF0) return {3, 0x80, 0xBF, 0x0F};
  if (byte == 0xF0) return {4, 0x90, 0xBF, 0x07};
  if (byte < 0xF4) return {4, 0x80, 0xBF, 0x07};
  if (byte == 0xF4) return {4, 0x80, 0x8F, 0x07};
  return {0, 0, 0};
}

}  // namespace

Utf8Unit read_utf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const Lead lead = lead_of(byte(0));
  if (lead.length == 0) return {Utf8Unit::Kind::invalid, 1, kReplacement};
  char32_t character = byte(0) & lead.payload_mask;
  for (size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) return {Utf8Unit::Kind::incomplete, i, kReplacement};
    const uint8_t low = i == 1 ? lead.second_min : uint8_t{0x80};
    const uint8_t high = i == 1 ? lead.second_max : uint8_t{0xBF};
    if (byte(i) < low || byte(i) > high) return {Utf8Unit::Kind::invalid, i, kReplacement};
    character = (character << 6) | (byte(i) & 0x3Fu);
  }
  return {Utf8Unit::Kind::character, lead.length, character};
}

size_t valid_utf8_prefix(std::string_view bytes) {
  size_t end = 0;
  while (end < bytes.size()) {
    const Utf8Unit unit = read_utf8(bytes.substr(end));
    if (unit.kind != Utf8Unit::Kind::character) break;
    end += unit.length;
  }
  return end;
}

std::string take_complete_utf8(std::string& bytes) {
  const std::string_view view = bytes;
  std::string text;
  text.reserve(view.size());
  size_t begin = 0;
  while (begin < view.size()) {
    const Utf8Unit unit = read_utf8(view.substr(begin));
    if (unit.kind == Utf8Unit::Kind::incomplete) break;
    text += unit.kind == Utf8Unit::Kind::character ? view.substr(begin, unit.length) : kReplacementCharacter;
    begin += unit.length;
  }
  bytes.erase(0, begin);
  return text;
}

std::string replace_invalid_utf8(std::string_view bytes) {
  std::string rest(bytes);
  std::string text = take_complete_utf8(rest);
  if (!rest.empty()) text += kReplacementCharacter;
  return text;
}

}  // namespace minfer
