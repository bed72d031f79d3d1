#pragma once

#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include "models/grammar/token_grammar.h"

namespace minfer {

/// What an answer is held to, for the commands that generate.
struct GrammarArgs {
  std::string json_schema_file;
  std::string grammar_file;
  std::string regex;

  void add_to(CLI::App& command);
  /// Null if none was asked for. `vocab_size`: the model's. Throws FileError naming the file for what it cannot honour.
  std::shared_ptr<TokenGrammar> compile(const Tokenizer& tokenizer, int32_t vocab_size) const;
};

}  // namespace minfer
