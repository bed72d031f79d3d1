#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "models/grammar/grammar.h"
#include "models/grammar/token_trie.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The tokens that may come next: bit t of words[t / 32].
struct TokenMask {
  std::vector<uint32_t> words;  ///< [ceil(vocab_size / 32)]; bits behind the vocabulary are 0
  int32_t num_allowed = 0;

  bool allows(TokenId token) const {
    return (words[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1) != 0;
  }
};

class GrammarStates;

/// A grammar over the tokens of a vocabulary, with what has been found out about it: shared by all requests that bring the same one.
/// Any thread may use it.
class TokenGrammar {
 public:
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens);
  ~TokenGrammar();
  TokenGrammar(const TokenGrammar&) = delete;
  TokenGrammar& operator=(const TokenGrammar&) = delete;

  size_t bytes() const;    ///< of memory, about; grows while it is used, up to a bound
  int64_t compile_ns = 0;  ///< what compiling it took, for who reads records
  const TokenTrie& tokens() const { return *tokens_; }

 private:
  friend class GrammarMatcher;
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> tokens_;
  std::unique_ptr<GrammarStates> states_;
};

/// Where one text stands in a grammar. One thread at a time; copies go on by themselves.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<TokenGrammar> grammar);
  GrammarMatcher(const GrammarMatcher&);
  GrammarMatcher& operator=(const GrammarMatcher&);
  ~GrammarMatcher();

  /// Goes on by a token. False, and unchanged, if the grammar does not allow it. End tokens are not for this: they end the text.
  bool accept(TokenId token);
  bool accept_bytes(std::string_view bytes);
  /// The tokens that may come next, end tokens if the text may end here. Valid as long as it is held. Throws GrammarError if the grammar is
  /// too ambiguous or nested too deeply here to say.
  std::shared_ptr<const TokenMask> mask();
  /// Whether the text is whole as it stands.
  bool may_end() const;
  /// Whether it is whole and nothing can follow.
  bool must_end() const;
  /// The bytes that follow whatever is drawn, at most `limit`: as long as there is exactly one, and the text may not end. May end inside
  /// a character.
  std::string forced_bytes(size_t limit) const;

  const TokenGrammar& grammar() const { return *grammar_; }

 private:
  struct Place;
  std::shared_ptr<TokenGrammar> grammar_;
  std::unique_ptr<Place> place_;
};

}  // namespace minfer
