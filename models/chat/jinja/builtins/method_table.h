#pragma once

#include <string_view>
#include <unordered_map>

#include "models/chat/jinja/evaluation.h"

namespace minfer::jinja {

using Method = Value (*)(Evaluation& evaluation, const Value& self, const Arguments& arguments);
using MethodTable = std::unordered_map<std::string_view, Method>;

MethodTable text_methods();

/// `format.format(arguments)`, Python's str.format.
Value format_braces(Evaluation& evaluation, const Value& format, const Arguments& arguments);

}  // namespace minfer::jinja
