#include "server/commands/args/model_args.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "kernels/base/error.h"
#include "models/decoder/weights/model_source.h"
#include "models/gguf/nearest_name.h"
#include "models/gguf/printable.h"

namespace minfer {
namespace {

constexpr const char* kModelDescription =
    "GGUF file, or synthetic:NAME[:TYPE] for random weights of a known shape (default: the demo model inside "
    "the binary)";

bool begins_as_gguf(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;  // opening a pipe would wait
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

}  // namespace

CLI::Option* add_model_argument(CLI::App& command, std::string& model) {
  return command.add_option("-m,--model,MODEL", model, kModelDescription);
}

bool names_a_model(const std::string& argument) {
  return argument.ends_with(".gguf") || argument.starts_with(kSyntheticPrefix) || begins_as_gguf(argument);
}

void ModelAndText::add_to(CLI::App& command, const std::string& text_name,
                          const std::string& text_description) {
  model_option_ = command.add_option("-m,--model", model_, kModelDescription);
  first_option_ =
      command.add_option("MODEL", first_,
                         "the same as --model. A single argument is a model if it ends in .gguf, begins with "
                         "synthetic: or names a GGUF file; otherwise it is the " +
                             text_name + "; with --model (which may be '') it is always the " + text_name);
  second_option_ = command.add_option(text_name, second_, text_description);
}

void ModelAndText::resolve() {
  const bool one = first_option_->count() > 0, two = second_option_->count() > 0;
  if (model_option_->count() > 0) {
    if (two) {
      fail("\"{}\" and \"{}\": expected one argument beside --model; put a text of several words in quotes",
           printable(first_), printable(second_));
    }
    if (one) text_ = first_;
    return;
  }
  if (two) {
    if (!names_a_model(first_) && !std::filesystem::exists(first_)) {
      fail<FileError>(
          "{}: no such file{}; the first of two arguments is the model; put a text of several words in "
          "quotes",
          printable(first_), did_you_mean_path(first_));
    }
    model_ = first_;
    text_ = second_;
  } else if (one) {
    (names_a_model(first_) ? model_ : text_.emplace()) = first_;
  }
}

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
