#pragma once

#include <string>

namespace minfer {

/// The text of a chat template (Jinja).
struct ChatTemplateSource {
  std::string text;
  std::string tool_use = {};           ///< the one for conversations with tools; empty: the same
  std::string name = "chat template";  ///< for messages
};

}  // namespace minfer
