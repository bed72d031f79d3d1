#pragma once

#include <optional>
#include <string_view>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {

// Python's methods of str that both methods and filters need. All keep the origin of every byte.

enum class Side { left, right, both };

/// The text without the characters of `characters` (white space if absent) at its ends.
Text strip(const Text& text, const std::optional<std::string_view>& characters, Side side);

/// Replaces the first `count` occurrences of `old`; negative: all. An empty `old` matches between all characters.
Text replace(const Text& text, const Text& old, const Text& replacement, int64_t count);

/// Lists of texts: cut at `separator`, which is not empty, or at white space; at most `count` cuts unless
/// negative, from the left or the right.
Items split(const Text& text, std::string_view separator, int64_t count, bool from_right);
Items split_words(const Text& text, int64_t count, bool from_right);
Items split_lines(const Text& text, bool keep_ends);

/// The first or last position of `part`, in time linear in both; npos if there is none.
size_t find_part(std::string_view text, std::string_view part, bool from_right);

/// With `fill` around it up to `width` characters.
enum class Align { left, right, center };
Text pad(const Text& text, int64_t width, const Text& fill, Align align);

/// True if there is a letter with case, and all such letters satisfy `is_wanted`.
bool has_case(const Text& text, bool (*is_wanted)(char32_t));

// Functions that are both a method and a filter.

template <Text (*map)(const Text&)>
Value mapped(const Value& subject, const Bound&) {
  const Text text = to_text(subject);
  Rendering::scan(8 * text.size());  // some steps a character: case is looked up
  return Value(map(text));
}

template <Side side>
Value stripped(const Value& subject, const Bound& given) {
  const bool is_space = given[0].is_none();
  return Value(strip(to_text(subject), is_space ? std::nullopt : std::optional(given.text(0).bytes()), side));
}

template <Align align>
Value padded(const Value& subject, const Bound& given) {
  const Text fill = given.text(1, " ");
  if (count_characters(fill.bytes()) != 1)
    fail<TemplateError>("ljust(), rjust() or center(): expected one character to fill with");
  return Value(pad(to_text(subject), given.integer(0, 80), fill, align));
}

}  // namespace minfer::jinja
