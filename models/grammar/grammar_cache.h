#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

#include "models/grammar/token_grammar.h"

namespace minfer {

/// Compiled grammars by what they were made of, so that a schema that many requests bring is compiled once. Those used least recently go
/// when there are too many. Any thread may use it; who asks for a grammar compiles it, on its own thread.
class GrammarCache {
 public:
  struct Options {
    size_t max_bytes = 512u << 20;  ///< of what is kept for later requests; live requests keep their own
    GrammarLimits limits;
  };
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

  /// The grammar that `build` makes, or made before for an equal `key`, which says all that it depends on. Throws what `build` and
  /// compile_grammar() throw.
  std::shared_ptr<TokenGrammar> get(const std::string& key, const Build& build);
  Counts counts() const;

 private:
  using Compiled = std::shared_future<std::shared_ptr<TokenGrammar>>;
  struct Entry {
    std::string key;
    Compiled grammar;
    uint64_t number;
  };

  std::pair<Entry, bool> find_or_add(const std::string& key, const Compiled& promised);
  std::shared_ptr<TokenGrammar> compile(const Build& build);
  void forget(const Entry& entry);
  void drop_oldest();

  const std::function<std::shared_ptr<const TokenTrie>()> make_tokens_;
  const Options options_;
  std::once_flag tokens_made_;
  std::shared_ptr<const TokenTrie> tokens_;

  mutable std::mutex mutex_;
  std::list<Entry> entries_;  ///< used last in front
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
  uint64_t num_entries_made_ = 0;
  Counts counts_;
};

}  // namespace minfer
