#include "profiling/json/json_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <utf8proc.h>

namespace minfer {
namespace {

// Length of the UTF-8 character that `text` starts with; 0: it starts with none.
size_t utf8_length(std::string_view text) {
  utf8proc_int32_t character = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length = utf8proc_iterate(bytes, static_cast<utf8proc_ssize_t>(text.size()), &character);
  return static_cast<size_t>(std::max<utf8proc_ssize_t>(length, 0));
}

// Bytes at the front of `text` that stand for themselves in JSON: ASCII but for controls, quote and backslash.
size_t plain_length(std::string_view text) {
  const auto is_plain = [](unsigned char c) { return c >= 0x20 && c < 0x80 && c != '"' && c != '\\'; };
  size_t length = 0;
  while (length < text.size() && is_plain(static_cast<unsigned char>(text[length])))
    ++length;
  return length;
}

}  // namespace

void JsonText::separate() {
  if (out_.empty()) return;
  const char last = out_.back();
  if (last != '{' && last != '[' && last != ':' && last != '\n') out_ += ',';
}

JsonText& JsonText::key(std::string_view name) {
  value(name);
  out_ += ':';
  return *this;
}

JsonText& JsonText::value(std::string_view text) {
  separate();
  out_ += '"';
  while (true) {
    const size_t plain = plain_length(text);
    out_.append(text.substr(0, plain));
    text.remove_prefix(plain);
    if (text.empty()) break;
    const size_t length = utf8_length(text);
    if (length == 0) {
      out_ += "\xEF\xBF\xBD";
    } else if (text[0] == '"' || text[0] == '\\') {
      out_ += '\\';
      out_ += text[0];
    } else if (static_cast<unsigned char>(text[0]) < 0x20) {
      out_ += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[0]));
    } else {
      out_.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  out_ += '"';
  return *this;
}

JsonText& JsonText::literal(std::string_view text) {
  separate();
  out_ += text;
  return *this;
}

JsonText& JsonText::value(double number, int decimals) {
  std::array<char, 400> digits;  // the largest double has 309 digits before the point
  if (!std::isfinite(number)) number = 0.0;
  char* end = std::to_chars(digits.begin(), digits.end(), number, std::chars_format::fixed, decimals).ptr;
  if (decimals > 0) {
    while (end[-1] == '0')
      --end;
    if (end[-1] == '.') --end;
  }
  return literal({digits.data(), end});
}

}  // namespace minfer
