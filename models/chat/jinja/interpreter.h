#pragma once

#include <string>
#include <vector>

#include "models/chat/jinja/syntax/ast.h"

namespace minfer::jinja {

struct Rendered {
  Text text;
  std::vector<std::string> read;  ///< the variables that the template has read, each once
};

/// Renders a parsed template in the rendering of this thread, with the variables that it starts with. Throws TemplateError
/// "line N: ...", and TemplateRaised with the template's own message.
Rendered render(const Body& body, const Dict& variables);

}  // namespace minfer::jinja
