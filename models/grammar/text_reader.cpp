#include "models/grammar/text_reader.h"

#include <algorithm>
#include <charconv>

#include "kernels/base/error.h"
#include "models/grammar/grammar_builder.h"
#include "models/tokenizer/utf8.h"

namespace minfer {

bool TextReader::skip(std::string_view expected) {
  if (!rest().starts_with(expected)) return false;
  position_ += expected.size();
  return true;
}

ptrdiff_t TextReader::line_at(size_t position) const {
  return std::ranges::count(text_.substr(0, position), '\n') + 1;
}

std::string TextReader::place() const {
  return fmt::format("{}, line {}", kind_, line_at(position_));
}

void TextReader::refuse(std::string_view what) const {
  fail<GrammarError>("{}: {}", place(), what);
}

void TextReader::skip_space(bool over_lines) {
  for (; !at_end(); ++position_) {
    if (peek() == '#' || rest().starts_with(comment_))
      position_ = std::min(text_.find('\n', position_), end_);
    if (at_end() || (peek() == '\n' && !over_lines)) return;
    if (peek() != '\n' && peek() != ' ' && peek() != '\t' && peek() != '\r') return;
  }
}

bool TextReader::skip_to_alternative(bool in_group) {
  const size_t position = position_;
  skip_space(true);
  if (skip("|")) return true;
  if (!in_group) position_ = position;
  return false;
}

char32_t TextReader::take_code_point() {
  const Utf8Unit unit = read_utf8(rest());
  if (unit.kind != Utf8Unit::Kind::character) refuse("not UTF-8");
  position_ += unit.length;
  return unit.character;
}

std::optional<int64_t> TextReader::take_number() {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(rest().data(), rest().data() + rest().size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  position_ += static_cast<size_t>(end - rest().data());
  return value;
}

std::optional<char32_t> TextReader::take_hex(int digits) {
  const std::string_view hex = rest().substr(0, static_cast<size_t>(digits));
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  if (error != std::errc() || end != hex.data() + digits) return std::nullopt;
  position_ += hex.size();
  return value;
}

}  // namespace minfer
