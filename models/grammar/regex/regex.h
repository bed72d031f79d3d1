#pragma once

#include <string_view>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/regex/code_points.h"
#include "models/grammar/regex/regex_reader.h"

namespace minfer {

/// What of a text a regular expression describes.
enum class RegexScope : uint8_t {
  whole,   ///< all of it
  search,  ///< some part of it, wherever, if no anchor says so: "pattern" of JSON Schema
};

/// Texts that match a regular expression: ECMA-262's syntax less look-around, back references and word boundaries. An anchor may stand
/// wherever it can match, but within what is repeated. Throws GrammarError naming what is wrong and where.
GrammarBuilder::Expr regex_texts(GrammarBuilder& builder, std::string_view pattern, RegexScope scope,
                                 Spelling spelling, const RegexFlags& flags = {});

}  // namespace minfer
