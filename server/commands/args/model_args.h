#pragma once

#include <optional>
#include <string>

#include <CLI/CLI.hpp>

#include "models/chat/chat_template.h"

namespace minfer {

/// Adds `-m,--model`, which is also the command's first positional argument, MODEL. An empty model is the demo model.
CLI::Option* add_model_argument(CLI::App& command, std::string& model);

/// True if an argument that may be a model or a text is a model: it ends in .gguf,
/// begins with "synthetic:", or names a file that begins as a GGUF file does.
bool names_a_model(const std::string& argument);

/// The arguments of commands that take a model and a text, [MODEL] [TEXT]. Either may be left out.
class ModelAndText {
 public:
  /// Adds `-m,--model`, MODEL and the text under the name `text_name`. The commands' object outlives `command`.
  void add_to(CLI::App& command, const std::string& text_name, const std::string& text_description);
  /// Once the command line is parsed: tells the model from the text. Throws Error if both arguments can only be texts.
  void resolve();

  const std::string& model() const { return model_; }
  const std::optional<std::string>& text() const { return text_; }

 private:
  CLI::Option* model_option_ = nullptr;
  CLI::Option* first_option_ = nullptr;
  CLI::Option* second_option_ = nullptr;
  std::string model_, first_, second_;
  std::optional<std::string> text_;
};

/// The chat template, for the commands that render conversations.
struct ChatArgs {
  std::string template_file;  ///< empty: the model's own

  CLI::Option* add_to(CLI::App& command);
  /// The template; a line on standard error says so if the model has none.
  ChatTemplate open(const ChatTemplateSource& of_model, const Tokenizer& tokenizer) const;
};

}  // namespace minfer
