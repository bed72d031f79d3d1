#pragma once

#include <string>
#include <utility>
#include <vector>

#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The text of a chat template (Jinja).
struct ChatTemplateSource {
  std::string text;
  std::string tool_use = {};           ///< the text for conversations with tools; empty: the same text
  std::string name = "chat template";  ///< for messages
};

/// The prompt that a chat template made of a conversation.
struct RenderedChat {
  RenderedChat(std::vector<PromptPart> prompt, std::vector<std::string> unused = {})  // NOLINT: as its parts
      : parts(std::move(prompt)), ignored(std::move(unused)) {}

  std::vector<PromptPart> parts;
  /// The input that does not change the prompt: "tools", "documents", "messages[].tool_calls",
  /// "messages[].name", "messages[].role:tool" (results of calls), "messages[].role:system", and variables that the template
  /// never reads.
  std::vector<std::string> ignored;
};

}  // namespace minfer
