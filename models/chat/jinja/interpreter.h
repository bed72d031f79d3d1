#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/chat/jinja/syntax/ast.h"

namespace minfer::jinja {

/// Parses a template by Jinja2's grammar, with the loop controls break and continue and Hugging Face's generation block. Throws
/// TemplateError that names the line, what was expected and what was found, also for names of filters and tests that do not exist (outside
/// of conditions, as Jinja2) and for nesting deeper than the parser takes.
Body parse(std::string_view source);

struct Rendered {
  Text text;
  std::vector<std::string> read;  ///< the variables that the template has read, each once
};

/// Renders a parsed template in the rendering of this thread, with the variables that it starts with. Throws TemplateError
/// "line N: ...", and TemplateRaised with the template's own message.
Rendered render(const Body& body, const Dict& variables);

}  // namespace minfer::jinja
