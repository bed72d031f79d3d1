#include "models/tokenizer/normal_form.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

#include <utf8proc.h>

#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

// utf8proc sorts marks by insertion, which is quadratic in a run. Languages need fewer than 30 (UAX #15,
// stream-safe text).
constexpr int kMaxMarks = 128;

/// Bytes of `text`, which begins with a character, up to the first that is not UTF-8 or the next mark too
/// many.
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
