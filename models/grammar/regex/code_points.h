#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/grammar/grammar_builder.h"

namespace minfer {

/// Sets of code points, as ranges.
using CodePoints = std::vector<CodePointRange>;

inline constexpr char32_t kMaxCodePoint = 0x10ffff;

/// Sorted, without overlaps.
CodePoints merged_ranges(CodePoints set);
CodePoints complement(CodePoints set);
CodePoints intersection(const CodePoints& a, const CodePoints& b);

/// The same, and of ASCII letters both cases.
CodePoints with_both_cases(CodePoints set);

/// What a class escape stands for in ECMA-262: one of the letters d, w, s, D, W, S; empty: none.
std::optional<CodePoints> class_escape(char letter);
/// Line ends of ECMA-262, which '.' leaves out.
CodePoints line_ends();
/// Of a Unicode general category by its short name ("L", "Lu"), or "Any" or "ASCII"; empty: no such.
std::optional<CodePoints> unicode_property(std::string_view name);

/// How the characters of a text are written in what the grammar describes.
enum class Spelling : uint8_t {
  plain,
  json_string,  ///< between the quotes of a JSON string: escaped where that is necessary, and only there
};

/// One code point of the set.
GrammarBuilder::Expr spelled(GrammarBuilder& builder, Spelling spelling, std::span<const CodePointRange> set);

}  // namespace minfer
