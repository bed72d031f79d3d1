#pragma once

#include <string_view>

namespace minfer {

/// The regular expression of a terminal that Lark grammars import from `common`; empty: there is none of that name.
std::string_view common_terminal(std::string_view name);

}  // namespace minfer
