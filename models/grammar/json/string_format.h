#pragma once

#include <string_view>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/regex/code_points.h"

namespace minfer {

/// Whether a "format" of JSON Schema is one of those below.
bool is_string_format(std::string_view format);
/// Valid texts of the format. Of those that may be of any length, such as are in use.
GrammarBuilder::Expr format_texts(GrammarBuilder& builder, std::string_view format, Spelling spelling);

}  // namespace minfer
