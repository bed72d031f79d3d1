#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "models/chat/chat_template.h"

namespace minfer {

/// The chat template, for the commands that render conversations.
struct ChatArgs {
  std::string template_file;  ///< empty: the model's own

  CLI::Option* add_to(CLI::App& command);
  /// The template; a line on standard error says so if the model has none.
  ChatTemplate open(const ChatTemplateSource& of_model, const Tokenizer& tokenizer) const;
};

}  // namespace minfer
