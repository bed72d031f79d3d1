#pragma once

#include <string_view>

#include "models/chat/jinja/syntax/ast.h"

namespace minfer::jinja {

/// Parses a template by Jinja2's grammar, with the loop controls break and continue and Hugging Face's generation block. Throws
/// TemplateError that names the line, what was expected and what was found, also for names of filters and tests that do not exist (outside
/// of conditions, as Jinja2) and for nesting deeper than the parser takes.
Body parse(std::string_view source);

}  // namespace minfer::jinja
