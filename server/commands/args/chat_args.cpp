#include "server/commands/args/chat_args.h"

#include <cstdio>

namespace minfer {

CLI::Option* ChatArgs::add_to(CLI::App& command) {
  return command.add_option("--chat-template", template_file,
                            "file with the chat template, in Jinja (default: the model's own)");
}

ChatTemplate ChatArgs::open(const ChatTemplateSource& of_model, const Tokenizer& tokenizer) const {
  ChatTemplate chat_template = open_chat_template(template_file, of_model, tokenizer);
  if (template_file.empty() && of_model.text.empty())
    fmt::print(stderr, "the model has no chat template: {}\n", chat_template.name());
  return chat_template;
}

}  // namespace minfer
