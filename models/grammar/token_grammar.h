#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

#include "models/grammar/grammar.h"
#include "models/grammar/token_trie.h"
#include "models/tokenizer/tokenizer.h"

namespace minfer {

/// The tokens that may come next: bit t of words[t / 32].
struct TokenMask {
  std::vector<uint32_t> words;  ///< [ceil(vocab_size / 32)]; bits beyond the vocabulary are 0
  int32_t num_allowed = 0;

  bool allows(TokenId token) const {
    return (words[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1) != 0;
  }
};

/// Thrown when a slice of work is done. It is not an error: the caller calls again and gets further.
struct GrammarPaused {};

/// Counts the cost of following a text: bytes, edges and places, some 10 ns each. It counts and does not measure time, so that
/// refusals do not depend on the machine.
class GrammarWork {
 public:
  /// The limit for one token, half a second or so. Masks of real schemas take less than a hundredth of it.
  static constexpr size_t kMost = 50'000'000;

  /// Makes it pause after about `most` more work; without this call it never pauses.
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

class StateTable;
class TokenGrammar;

/// Bounds the memory of the states of many grammars together. Drops the states of the least recently used grammar; states that live texts
/// still need are made again. Also counts the grammars themselves. Any thread may use it.
class GrammarMemory {
 public:
  explicit GrammarMemory(size_t most_bytes) : most_bytes_(most_bytes) {}
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }  ///< of states, approximate
  size_t grammar_bytes() const { return grammar_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class TokenGrammar;
  void add(TokenGrammar& grammar);
  void remove(TokenGrammar& grammar);
  void note_use(TokenGrammar& user) noexcept;

  const size_t most_bytes_;
  std::atomic<size_t> bytes_ = 0;
  std::atomic<size_t> grammar_bytes_ = 0;
  std::atomic<uint64_t> num_uses_ = 0;
  std::mutex mutex_;
  std::vector<TokenGrammar*> grammars_;
};

/// A grammar over the tokens of a vocabulary, with the states found so far. All requests with the same grammar share it.
/// Any thread may use it.
class TokenGrammar {
 public:
  TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
               std::shared_ptr<GrammarMemory> memory = std::make_shared<GrammarMemory>(SIZE_MAX));
  ~TokenGrammar();
  TokenGrammar(const TokenGrammar&) = delete;
  TokenGrammar& operator=(const TokenGrammar&) = delete;

  size_t bytes() const {
    return grammar_->bytes() + state_bytes_;
  }  ///< approximate; grows with use, up to a bound
  size_t bytes_without_states() const { return grammar_->bytes(); }
  int64_t compile_ns = 0;  ///< time to compile it, for the records
  const TokenTrie& tokens() const { return *tokens_; }

 private:
  friend class GrammarMatcher;
  friend class GrammarMemory;
  class Using;
  /// Calls use(table, place, work).
  template <class Use>
  auto use(uint32_t& place, GrammarWork* work, const Use& use);
  template <class Look>
  auto look(const Look& look) const;
  void add_place(uint32_t& place, const uint32_t* like);
  void remove_place(uint32_t& place);
  void note_bytes();
  void begin_anew();
  void try_begin_anew() noexcept;

  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const TokenTrie> tokens_;
  const std::shared_ptr<GrammarMemory> memory_;
  mutable std::mutex mutex_;
  std::unique_ptr<StateTable> table_;     ///< the states that texts have come to
  std::unordered_set<uint32_t*> places_;  ///< of texts
  std::atomic<size_t> state_bytes_ = 0;   ///< of the table when it was last used
  std::atomic<uint64_t> last_use_ = 0;
  uint64_t sorted_by_ = 0;  ///< under the memory's lock
};

/// The position of one text in a grammar. One thread at a time; copies are independent. Functions with a GrammarWork throw GrammarPaused
/// and GrammarError as described there, and leave the position unchanged. Null: a work limit for one token, without pauses.
class GrammarMatcher {
 public:
  explicit GrammarMatcher(std::shared_ptr<TokenGrammar> grammar);
  GrammarMatcher(const GrammarMatcher&);
  GrammarMatcher& operator=(const GrammarMatcher&);
  ~GrammarMatcher();

  /// Advances by a token. Returns false, unchanged, if the grammar does not allow it. Do not pass end tokens: they end the text.
  bool accept(TokenId token, GrammarWork* work = nullptr);
  bool accept_bytes(std::string_view bytes, GrammarWork* work = nullptr);
  /// The tokens that may come next, including end tokens if the text may end. Valid while the caller holds it. Throws GrammarError if the
  /// grammar is too ambiguous or nested too deeply here.
  std::shared_ptr<const TokenMask> mask(GrammarWork* work = nullptr);
  /// True if the text is whole and may end here.
  bool may_end() const;
  /// True if the text is whole and nothing can follow.
  bool must_end() const;
  /// The bytes that must follow, at most `limit`: as long as exactly one byte can follow and the text may not end. May end inside
  /// a character.
  std::string forced_bytes(size_t limit, GrammarWork* work = nullptr) const;

  const TokenGrammar& grammar() const { return *grammar_; }

 private:
  std::shared_ptr<TokenGrammar> grammar_;
  std::unique_ptr<uint32_t> place_;  ///< state of the grammar's table; the table refers to it by address
};

}  // namespace minfer
