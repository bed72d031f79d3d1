#pragma once

#include <string_view>

#include "models/grammar/code_points.h"
#include "models/grammar/grammar_builder.h"
#include "models/grammar/regex/regex_reader.h"

namespace minfer {

/// The part of a text that a regular expression describes.
enum class RegexScope : uint8_t {
  whole,   ///< all of it
  search,  ///< some part, anywhere unless an anchor says where: "pattern" of JSON Schema
};

/// Texts that match a regular expression: ECMA-262's syntax without look-around, back references and word boundaries. An anchor may be
/// anywhere that it can match, except within a repetition. Throws GrammarError naming the problem and its place.
GrammarBuilder::Expr regex_texts(GrammarBuilder& builder, std::string_view pattern, RegexScope scope,
                                 Spelling spelling, const RegexFlags& flags = {});

}  // namespace minfer
