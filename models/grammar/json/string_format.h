#pragma once

#include <string_view>

#include "models/grammar/code_points.h"
#include "models/grammar/grammar_builder.h"

namespace minfer {

/// True if format_texts() knows a "format" of JSON Schema.
bool is_string_format(std::string_view format);
/// The valid texts of the format. For formats of unlimited length, only texts of usual lengths.
GrammarBuilder::Expr format_texts(GrammarBuilder& builder, std::string_view format, Spelling spelling);

}  // namespace minfer
