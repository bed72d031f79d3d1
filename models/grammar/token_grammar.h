#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
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

/// Thrown where a slice of work has been done, not an error: whoever asked asks again, and gets further.
struct GrammarPaused {};

/// Counts what following a text costs: bytes, edges and places looked at, some 10 ns each. Counted rather than timed, so that what is
/// refused does not depend on the machine.
class GrammarWork {
 public:
  /// For one token: half a second or so. Masks of real schemas take less than a hundredth of it.
  static constexpr size_t kMost = 50'000'000;

  /// Has it pause when about so much more is spent; else it does not.
  void begin_slice(size_t most) { pause_at_ = spent_ + most; }
  size_t spent() const { return spent_; }
  /// Throws GrammarError beyond kMost.
  void spend(size_t work) {
    spent_ += work;
    if (spent_ > kMost) fail_work();
  }
  void pause_if_due() const {
    if (spent_ >= pause_at_) throw GrammarPaused();
  }

 private:
  [[noreturn]] static void fail_work();

  size_t spent_ = 0;
  size_t pause_at_ = SIZE_MAX;
};

class GrammarStates;

/// What the states of many grammars may take together. Those of the grammar used least recently are dropped: what live texts still need of
/// them is made again. Counts the grammars themselves beside. Any thread may use it.
class GrammarMemory {
 public:
  explicit GrammarMemory(size_t most_bytes) : most_bytes_(most_bytes) {}
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  ///< of states, about
  size_t grammar_bytes() const { return grammar_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class GrammarStates;
  void add(GrammarStates& states);
  void remove(GrammarStates& states);
  void note_use(GrammarStates& user) noexcept;

  const size_t most_bytes_;
  std::atomic<size_t> bytes_ = 0;
  std::atomic<size_t> grammar_bytes_ = 0;
  std::atomic<uint64_t> num_uses_ = 0;
  std::mutex mutex_;
  std::vector<GrammarStates*> states_;
};

/// A grammar over the tokens of a vocabulary, with what has been found out about it: shared by all requests that bring the same one.
/// Any thread may use it.
class TokenGrammar {
 public:
  /// `memory` null: its states are bounded by themselves alone.
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
               std::shared_ptr<GrammarMemory> memory = nullptr);
  ~TokenGrammar();
  TokenGrammar(const TokenGrammar&) = delete;
  TokenGrammar& operator=(const TokenGrammar&) = delete;

  size_t bytes() const;  ///< of memory, about; grows while it is used, up to a bound
  size_t bytes_without_states() const { return grammar_->bytes(); }
  int64_t compile_ns = 0;  ///< what compiling it took, for who reads records
  const TokenTrie& tokens() const { return *tokens_; }

 private:
  friend class GrammarMatcher;
  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<const TokenTrie> tokens_;
  std::unique_ptr<GrammarStates> states_;
};

/// Where one text stands in a grammar. One thread at a time; copies go on by themselves. What takes a GrammarWork throws GrammarPaused and
/// GrammarError as that says; the text then stands where it stood. Null: work as for one token, without pauses.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<TokenGrammar> grammar);
  GrammarMatcher(const GrammarMatcher&);
  GrammarMatcher& operator=(const GrammarMatcher&);
  ~GrammarMatcher();

  /// Goes on by a token. False, and unchanged, if the grammar does not allow it. End tokens are not for this: they end the text.
  bool accept(TokenId token, GrammarWork* work = nullptr);
  bool accept_bytes(std::string_view bytes, GrammarWork* work = nullptr);
  /// The tokens that may come next, end tokens if the text may end here. Valid as long as it is held. Throws GrammarError if the grammar is
  /// too ambiguous or nested too deeply here to say.
  std::shared_ptr<const TokenMask> mask(GrammarWork* work = nullptr);
  /// Whether the text is whole as it stands.
  bool may_end() const;
  /// Whether it is whole and nothing can follow.
  bool must_end() const;
  /// The bytes that follow whatever is drawn, at most `limit`: as long as there is exactly one, and the text may not end. May end inside
  /// a character.
  std::string forced_bytes(size_t limit, GrammarWork* work = nullptr) const;

  const TokenGrammar& grammar() const { return *grammar_; }

 private:
  std::shared_ptr<TokenGrammar> grammar_;
  std::unique_ptr<uint32_t> place_;  ///< state of the grammar's table, which knows it by address
};

}  // namespace minfer
