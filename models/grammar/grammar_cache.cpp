#include "models/grammar/grammar_cache.h"

#include <chrono>
#include <utility>

#include "kernels/base/error.h"

namespace minfer {
namespace {

/// The bytes charged for a grammar beside its key and its tables. So a bound on bytes also bounds the number of grammars.
constexpr size_t kBytesBeside = 2048;

}  // namespace

GrammarCache::GrammarCache(std::function<std::shared_ptr<const TokenTrie>()> make_tokens, Options options)
    : make_tokens_(std::move(make_tokens)),
      options_(options),
      memory_(std::make_shared<GrammarMemory>(options.max_state_bytes)) {}

bool GrammarCache::ask(const std::string& key, Done done) {
  Outcome outcome;
  {
    const std::lock_guard lock(mutex_);
    const auto known = index_.find(key);
    if (known == index_.end()) {
      entries_.push_front({.key = key, .waiting = {std::move(done)}});
      index_.emplace(key, entries_.begin());
      return true;
    }
    Entry& entry = *known->second;
    entries_.splice(entries_.begin(), entries_, known->second);
    ++(entry.outcome && entry.outcome->error ? counts_.refused : counts_.reused);
    if (!entry.outcome) {
      entry.waiting.push_back(std::move(done));
      return false;
    }
    outcome = *entry.outcome;
  }
  done(outcome);
  return false;
}

void GrammarCache::compile(const std::string& key, const Build& build) {
  Outcome outcome;
  bool is_kept = true;
  try {
    outcome.grammar = compiled(build);
  } catch (const GrammarError&) {
    outcome.error = std::current_exception();
  } catch (...) {  // not the grammar's fault: the next one may fare better
    outcome.error = std::current_exception();
    is_kept = false;
  }
  std::vector<Done> waiting;
  std::list<Entry> dropped;  // freed without the lock
  {
    const std::lock_guard lock(mutex_);
    ++(outcome.error ? counts_.refused : counts_.compiled);
    if (outcome.grammar) counts_.compile_ns += outcome.grammar->compile_ns;
    const auto known = index_.find(key);
    std::swap(waiting, known->second->waiting);
    known->second->outcome = outcome;
    if (is_kept) {
      dropped = take_oldest();
    } else {
      dropped.splice(dropped.begin(), entries_, known->second);
      index_.erase(known);
    }
  }
  for (const Done& done : waiting)
    done(outcome);
}

std::shared_ptr<TokenGrammar> GrammarCache::compiled(const Build& build) {
  std::call_once(tokens_made_, [&] { tokens_ = make_tokens_(); });
  const auto start = std::chrono::steady_clock::now();
  GrammarBuilder builder(options_.limits);
  const GrammarBuilder::Expr root = build(builder);
  auto grammar = std::make_shared<TokenGrammar>(compile_grammar(builder, root), tokens_, memory_);
  if (memory_->grammar_bytes() > options_.max_live_bytes)
    fail<GrammarsFull>("the grammars of all requests take {} bytes, expected at most {}; try again later",
                       memory_->grammar_bytes(), options_.max_live_bytes);
  (void)GrammarMatcher(grammar).mask();  // every text needs it
  grammar->compile_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  return grammar;
}

/// The newest one stays, and what is being compiled.
std::list<GrammarCache::Entry> GrammarCache::take_oldest() {
  std::list<Entry> oldest;
  counts_.bytes = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const auto next = std::next(entry);
    const bool is_made = entry->outcome.has_value();
    counts_.bytes += 2 * entry->key.size() + kBytesBeside;
    if (is_made && entry->outcome->grammar) counts_.bytes += entry->outcome->grammar->bytes_without_states();
    if (is_made && entry != entries_.begin() && counts_.bytes > options_.max_bytes) {
      index_.erase(entry->key);
      oldest.splice(oldest.begin(), entries_, entry);
    }
    entry = next;
  }
  return oldest;
}

GrammarCache::Counts GrammarCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace minfer
