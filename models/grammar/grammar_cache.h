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

/// Too many grammars are in use at a time for another one: later there may be room.
class GrammarsFull : public Error {
 public:
  using Error::Error;
};

/// Compiled grammars by what they were made of, so that a schema that many requests bring is compiled once, and refused once. Those used
/// least recently go when there are too many. Any thread may use it.
class GrammarCache {
 public:
  struct Options {
    size_t max_bytes =
        32u << 20;  ///< of what is kept for later requests, without states; live requests keep their own
    size_t max_state_bytes = 64u << 20;  ///< of the states of all, those of live requests too
    size_t max_live_bytes = 256u << 20;  ///< of all grammars without their states, those of live requests too
    GrammarLimits limits;
  };
  /// One of both.
  struct Outcome {
    std::shared_ptr<TokenGrammar> grammar;
    std::exception_ptr error;  ///< what the build and compile_grammar() threw
  };
  using Done = std::function<void(const Outcome&)>;
  struct Counts {
    int64_t compiled = 0;
    int64_t reused = 0;
    int64_t refused = 0;
    int64_t compile_ns = 0;
    size_t bytes = 0;  ///< kept, when a grammar was last added
  };
  using Build = std::function<GrammarBuilder::Expr(GrammarBuilder&)>;

  /// `make_tokens` is called once, when the first grammar is asked for: a large vocabulary takes some 100 ms.
  GrammarCache(std::function<std::shared_ptr<const TokenTrie>()> make_tokens, Options options);

  /// Has `done` told of the grammar for `key`: here, if that is known, else when it has been compiled, by whoever does so. True: that is
  /// the caller, by compile(), on a thread where it may take a second or two.
  bool ask(const std::string& key, Done done);
  /// Makes the grammar that was asked for by `key`, which says all that `build` depends on.
  void compile(const std::string& key, const Build& build);
  /// Both, on this thread. Throws the error.
  std::shared_ptr<TokenGrammar> get(const std::string& key, const Build& build);
  Counts counts() const;

 private:
  struct Entry {
    std::string key;
    std::optional<Outcome> outcome = {};  ///< none while it is being compiled
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
  std::list<Entry> entries_;  ///< used last in front
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  Counts counts_;
};

}  // namespace minfer
