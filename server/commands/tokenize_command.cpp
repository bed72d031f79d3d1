#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "models/chat/chat_json.h"
#include "models/decoder/weights/model_source.h"
#include "models/gguf/printable.h"
#include "server/commands/args/options.h"
#include "server/commands/commands.h"
#include "server/hub/hub.h"
#include "server/terminal/terminal.h"

namespace minfer {
namespace {

struct TokenizeOptions {
  ModelAndText input;
  bool ids = false;
  bool no_bos = false;
  bool no_parse_special = false;
  bool decode = false;
  std::string chat_file;  ///< a conversation in JSON instead of the text; "-": standard input
  ChatArgs chat_template;
  bool print_text = false;
};

/// Ids separated by white space or commas.
std::vector<TokenId> parse_ids(std::string text) {
  std::ranges::replace(text, ',', ' ');
  std::istringstream words(text);
  std::vector<TokenId> ids;
  for (std::string word; words >> word;) {
    const auto id = parse_number<TokenId>(word);
    if (!id) fail("'{}', expected a token id", word);
    ids.push_back(*id);
  }
  return ids;
}

/// On one line, or as one line a token: its id, and its text as a person can read it.
void print(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool on_one_line) {
  if (on_one_line) return print_output(fmt::format("{}\n", fmt::join(ids, " ")));
  std::string table;
  for (const TokenId id : ids)
    table += fmt::format("{:>7}  '{}'{}\n", id, printable(tokenizer.piece(id, true)),
                         tokenizer.is_control(id) ? "  (control)" : "");
  print_output(table);
}

/// Undoes encoding with the same options: drops BOS if encoding adds it; special tokens have their text if they are parsed.
void print_text(const Tokenizer& tokenizer, std::vector<TokenId> ids, const TokenizeOptions& options) {
  const std::vector<TokenId> added = tokenizer.encode("", {.add_special = !options.no_bos});
  if (!ids.empty() && !added.empty() && ids.front() == tokenizer.bos() && added.front() == tokenizer.bos())
    ids.erase(ids.begin());
  print_output(tokenizer.decode(ids, !options.no_parse_special));
}

/// The form in which a model sees a conversation: its tokens, or the prompt's text.
void tokenize_chat(const TokenizeOptions& options) {
  const std::string model = local_model(options.input.model());
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(model);
  const ChatTemplate chat_template = options.chat_template.open(open_chat_template_source(model), *tokenizer);
  const RenderedChat chat = chat_template.render(
      parse_chat_input(options.chat_file == "-" ? read_standard_input() : read_text_file(options.chat_file)));
  if (!chat.ignored.empty())
    fmt::print(stderr, "{} does not use: {}\n", chat_template.name(), fmt::join(chat.ignored, ", "));
  if (options.print_text) {
    for (const PromptPart& part : chat.parts)
      print_output(part.text);
  } else {
    print(*tokenizer, tokenizer->encode_parts(chat.parts, false), options.ids);
  }
}

void tokenize(const TokenizeOptions& options) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(local_model(options.input.model()));
  const std::string text = options.input.text() ? *options.input.text() : read_standard_input();
  if (options.decode) return print_text(*tokenizer, parse_ids(text), options);
  const std::vector<TokenId> ids =
      tokenizer->encode(text, {.add_special = !options.no_bos, .parse_special = !options.no_parse_special});
  print(*tokenizer, ids, options.ids);
}

}  // namespace

void add_tokenize_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand("tokenize", "Turn text into token ids, or ids into text");
  const auto options = std::make_shared<TokenizeOptions>();
  options->input.add_to(*command, "TEXT", "text, or with --decode ids (default: standard input)");
  command->add_flag("--ids", options->ids, "Print ids on one line instead of a table");
  command->add_flag("--no-bos", options->no_bos, "Add no tokens at the beginning and the end");
  command->add_flag("--no-parse-special", options->no_parse_special,
                    "Take the text of special tokens as plain text; with --decode, leave it out");
  command->add_flag("--decode", options->decode, "Read ids and print their text, byte for byte")
      ->excludes("--ids");
  command
      ->add_option("--chat", options->chat_file,
                   "Show the prompt of a conversation instead of a text: a file, or - for standard "
                   "input, with {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": "
                   "true}; other keys are variables of the template")
      ->excludes("--no-bos", "--no-parse-special", "--decode");
  options->chat_template.add_to(*command)->needs("--chat");
  command->add_flag("--print-text", options->print_text, "The prompt of --chat as text, byte for byte")
      ->needs("--chat")
      ->excludes("--ids");
  command->footer(
      "Examples:\n"
      "  minfer tokenize \"Once upon a time\"\n"
      "  minfer tokenize llama.gguf \"Once upon a time\" --ids\n"
      "  minfer tokenize --ids \"Once upon a time\" | minfer tokenize --decode\n"
      "  minfer tokenize --chat conversation.json --print-text");
  command->callback([options] {
    options->input.resolve();
    if (!options->chat_file.empty() && options->input.text())
      fail("\"{}\": with --chat the text comes from its file", printable(*options->input.text()));
    options->chat_file.empty() ? tokenize(*options) : tokenize_chat(*options);
  });
}

}  // namespace minfer
