#pragma once

#include <string>
#include <vector>

#include "models/grammar/grammar_builder.h"

namespace minfer {

/// One of these texts: a tree by what they have in common, so that many of them cost little more than their number.
GrammarBuilder::Expr one_of(GrammarBuilder& builder, std::vector<std::string> texts);

}  // namespace minfer
