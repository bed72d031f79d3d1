#include "models/tokenizer/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include <utf8proc.h>

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

// utf8proc sorts marks by insertion, which is quadratic in a run. Languages need fewer than 30 (UAX #15, stream-safe text).
constexpr int kMaxMarks = 128;

/// Bytes of `text`, which begins with a character, up to the first that is not UTF-8 or the next mark too many.
size_t normalizable_prefix(std::string_view text) {
  size_t end = 0;
  int marks = 0;
  while (end < text.size()) {
    const Utf8Unit unit = read_utf8(text.substr(end));
    if (unit.kind != Utf8Unit::Kind::character) break;
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(unit.character));
    marks = property->combining_class == 0 ? 0 : marks + 1;
    if (marks > kMaxMarks) break;
    end += unit.length;
  }
  return end;
}

std::string normalize_valid(std::string_view text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
      &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  if (size < 0) throw std::bad_alloc();  // the only way to fail for valid UTF-8 and these options
  return {reinterpret_cast<const char*>(out), static_cast<size_t>(size)};
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

std::string to_nfc(std::string_view text) {
  const auto is_ascii = [](unsigned char c) { return c < 0x80; };
  if (std::ranges::all_of(text, is_ascii)) return std::string(text);
  std::string normalized;
  while (!text.empty()) {
    const size_t valid = normalizable_prefix(text);
    if (valid > 0) {
      normalized += normalize_valid(text.substr(0, valid));
    } else {
      normalized += text.front();
    }
    text.remove_prefix(std::max(valid, size_t{1}));
  }
  return normalized;
}

}  // namespace minfer
