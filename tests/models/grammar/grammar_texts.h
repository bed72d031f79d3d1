#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/token_grammar.h"
#include "models/grammar/token_trie.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer::test {

/// The texts that a grammar allows; bytes are its tokens.
class GrammarTexts {
 public:
  using Source = std::function<GrammarBuilder::Expr(GrammarBuilder&)>;

  explicit GrammarTexts(const Source& add) {
    GrammarBuilder builder;
    const GrammarBuilder::Expr root = add(builder);
    static const auto bytes =
        std::make_shared<const TokenTrie>(*make_byte_tokenizer(kVocabulary), kVocabulary);
    grammar_ = std::make_shared<TokenGrammar>(compile_grammar(builder, root), bytes);
  }

  GrammarMatcher matcher() const { return GrammarMatcher(grammar_); }
  bool accepts(std::string_view text) const {
    GrammarMatcher at = matcher();
    return at.accept_bytes(text) && at.may_end();
  }

 private:
  static constexpr int32_t kVocabulary = 260;
  std::shared_ptr<TokenGrammar> grammar_;
};

/// The error of a grammar; empty: none.
inline std::string grammar_error(const GrammarTexts::Source& add) {
  try {
    GrammarTexts texts(add);
    return {};
  } catch (const GrammarError& error) {
    return error.what();
  }
}

}  // namespace minfer::test
