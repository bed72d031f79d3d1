#include "server/commands/args/grammar_args.h"

#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "models/grammar/grammar_source.h"
#include "server/commands/terminal/text_file.h"

namespace minfer {
namespace {

GrammarBuilder::Expr add_schema_file(GrammarBuilder& builder, const std::string& path) {
  const std::string text = read_text_file(path);
  try {
    return add_json_schema(builder, nlohmann::ordered_json::parse(text), JsonStyle::free);
  } catch (const nlohmann::json::parse_error& error) {
    fail<FileError>("{}: not JSON: byte {}", path, error.byte);
  }
}

}  // namespace

void GrammarArgs::add_to(CLI::App& command) {
  auto* group = command.add_option_group(
      "Structured output", "what the answer is held to; one that is cut off before it is whole is an error");
  group->add_option("--json-schema", json_schema_file, "file with a JSON schema that the answer is valid by");
  group->add_option("--grammar", grammar_file, "file with a grammar in GBNF, as llama.cpp writes it");
  group->add_option("--regex", regex, "a regular expression that the whole answer matches");
  group->require_option(0, 1);
}

std::shared_ptr<TokenGrammar> GrammarArgs::compile(const Tokenizer& tokenizer, int32_t vocab_size) const {
  GrammarBuilder builder;
  const std::string& from = !json_schema_file.empty() ? json_schema_file
                            : !grammar_file.empty()   ? grammar_file
                                                      : regex;
  if (from.empty()) return nullptr;
  try {
    const GrammarBuilder::Expr root = !json_schema_file.empty() ? add_schema_file(builder, json_schema_file)
                                      : !grammar_file.empty()
                                          ? add_gbnf(builder, read_text_file(grammar_file))
                                          : add_regex(builder, regex);
    return std::make_shared<TokenGrammar>(compile_grammar(builder, root),
                                          std::make_shared<const TokenTrie>(tokenizer, vocab_size));
  } catch (const GrammarError& error) {
    fail<FileError>("{}: {}", from, error.what());
  }
}

}  // namespace minfer
