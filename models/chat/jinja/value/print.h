#pragma once

#include <string>

#include "models/chat/jinja/value/object.h"
#include "models/chat/jinja/value/unicode.h"

namespace minfer::jinja {

/// As Python prints a float: the shortest digits that give it back.
std::string format_real(double value);

/// str(value): what {{ value }} prints.
Text to_text(const Value& value);
void print(Text& out, const Value& value);
/// repr(value), which quotes strings; used for the elements of lists and dicts.
void print_repr(Text& out, const Value& value);

/// Appends `text` with every character for which `escape(character)` is not empty replaced by that.
/// Replacements have the origin of the characters that they replace.
template <class Escape>
void append_escaped(Text& out, const Text& text, Escape escape) {
  Rendering::step(text.size() / 4);
  size_t done = 0;
  for_each_character(text.bytes(), [&](char32_t c, size_t begin, size_t length) {
    const std::string replacement = escape(c);
    if (replacement.empty()) return;
    out.append(text, done, begin - done);
    out.append(replacement, text.origin_at(begin));
    done = begin + length;
  });
  out.append(text, done, text.size() - done);
}

/// Appends `text` with & < > ' " replaced by their HTML entities.
inline void append_html(Text& out, const Text& text) {
  append_escaped(out, text, [](char32_t c) -> std::string {
    constexpr std::string_view kNames[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t at = std::u32string_view(U"&<>'\"").find(c);
    return at == std::u32string_view::npos ? "" : std::string(kNames[at]);
  });
}

/// The separators and the indentation of a level, as in json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool multiline = false;  ///< one element a line, each level indented by `indent`
  Text indent;
  Text item_separator = Text(", ");
  Text key_separator = Text(": ");
};

/// The value as JSON. Throws TemplateError for values that JSON cannot express.
Text to_json(const Value& value, const JsonStyle& style);

}  // namespace minfer::jinja
