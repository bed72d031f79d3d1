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

/// The same set, with both cases of its ASCII letters.
CodePoints with_both_cases(CodePoints set);

/// The set of a class escape in ECMA-262, by its letter d, w, s, D, W or S; empty: no such escape.
std::optional<CodePoints> class_escape(char letter);
/// Line ends of ECMA-262, which '.' leaves out.
CodePoints line_ends();
/// The set of a Unicode general category by its short name ("L", "Lu"), or of "Any" or "ASCII"; empty: no such name.
std::optional<CodePoints> unicode_property(std::string_view name);

/// The spelling of characters in the texts that the grammar describes.
enum class Spelling : uint8_t {
  plain,
  json_string,  ///< between the quotes of a JSON string: escaped where that is necessary, and only there
};

/// One code point of the set.
GrammarBuilder::Expr spelled(GrammarBuilder& builder, Spelling spelling, std::span<const CodePointRange> set);

}  // namespace minfer
