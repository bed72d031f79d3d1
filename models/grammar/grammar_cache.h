#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/grammar/token_grammar.h"

namespace minfer {

/// Too many grammars are in use at a time for another one; there may be room later.
class GrammarsFull : public Error {
 public:
  using Error::Error;
};

/// Compiled grammars, by their sources. So a schema that many requests bring is compiled once, or refused once. If there are too many,
/// the least recently used ones are dropped. Any thread may use it.
class GrammarCache {
 public:
  struct Options {
    size_t max_bytes =
        32u << 20;  ///< of grammars kept for later requests, without states; live requests keep their own
    size_t max_state_bytes = 64u << 20;  ///< of the states of all grammars, including live requests'
    size_t max_live_bytes = 256u << 20;  ///< of all grammars without states, including live requests'
    GrammarLimits limits;
  };
  /// Either a grammar or an error.
  struct Outcome {
    std::shared_ptr<TokenGrammar> grammar;
    std::exception_ptr error;  ///< the error of the build or of compile_grammar()
  };
  using Done = std::function<void(const Outcome&)>;
  struct Counts {
    int64_t compiled = 0;
    int64_t reused = 0;
    int64_t refused = 0;
    int64_t compile_ns = 0;
    size_t bytes = 0;  ///< kept bytes, when a grammar was last added
  };
  using Build = std::function<GrammarBuilder::Expr(GrammarBuilder&)>;

  /// `make_tokens` is called once, for the first grammar, since a large vocabulary takes some 100 ms.
  GrammarCache(std::function<std::shared_ptr<const TokenTrie>()> make_tokens, Options options);

  /// Calls `done` with the grammar for `key`: at once if it is known, else on the thread that compiles it. Returns true if the caller must
  /// compile it, by compile(), on a thread where that may take a second or two.
  bool ask(const std::string& key, Done done);
  /// Compiles the grammar for `key`. `key` must contain everything that `build` depends on.
  void compile(const std::string& key, const Build& build);
  Counts counts() const;

 private:
  struct Entry {
    std::string key;
    std::optional<Outcome> outcome = {};  ///< no value while it is being compiled
    std::vector<Done> waiting = {};
  };

  std::shared_ptr<TokenGrammar> compiled(const Build& build);
  std::list<Entry> take_oldest();

  const std::function<std::shared_ptr<const TokenTrie>()> make_tokens_;
  const Options options_;
  std::once_flag tokens_made_;
  std::shared_ptr<const TokenTrie> tokens_;
  const std::shared_ptr<GrammarMemory> memory_;

  mutable std::mutex mutex_;
  std::list<Entry> entries_;  ///< most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  Counts counts_;
};

}  // namespace minfer
