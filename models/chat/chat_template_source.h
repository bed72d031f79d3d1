#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The text of a chat template (Jinja).
struct ChatTemplateSource {
  std::string text;
  std::string tool_use = {};           ///< the one for conversations with tools; empty: the same
  std::string name = "chat template";  ///< for messages
};

/// What a chat template made of a conversation.
struct RenderedChat {
  RenderedChat(std::vector<PromptPart> prompt, std::vector<std::string> unused = {})  // NOLINT: as its parts
      : parts(std::move(prompt)), ignored(std::move(unused)) {}

  std::vector<PromptPart> parts;
  /// The input without which the prompt would be the same: "tools", "documents", "messages[].tool_calls",
  /// "messages[].name", "messages[].role:tool" (results of calls), "messages[].role:system", variables that the template
  /// never asks for.
  std::vector<std::string> ignored;
};

}  // namespace minfer
