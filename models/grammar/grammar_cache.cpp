#include "models/grammar/grammar_cache.h"

#include <chrono>
#include <utility>

namespace minfer {
namespace {

/// 0 for one that is being made, or could not be: that is forgotten in a moment.
size_t bytes_of(const std::shared_future<std::shared_ptr<TokenGrammar>>& grammar) {
  if (grammar.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return 0;
  try {
    return grammar.get()->bytes();
  } catch (const std::exception&) {
    return 0;
  }
}

}  // namespace

GrammarCache::GrammarCache(std::function<std::shared_ptr<const TokenTrie>()> make_tokens, Options options)
    : make_tokens_(std::move(make_tokens)), options_(options) {}

/// The entry for a key, and whether it was made just now: then the caller keeps the promise.
std::pair<GrammarCache::Entry, bool> GrammarCache::find_or_add(const std::string& key,
                                                               const Compiled& promised) {
  const std::lock_guard lock(mutex_);
  if (const auto known = index_.find(key); known != index_.end()) {
    ++counts_.reused;
    entries_.splice(entries_.begin(), entries_, known->second);
    return {*known->second, false};
  }
  entries_.push_front({key, promised, ++num_entries_made_});
  index_.emplace(key, entries_.begin());
  return {entries_.front(), true};
}

std::shared_ptr<TokenGrammar> GrammarCache::get(const std::string& key, const Build& build) {
  std::promise<std::shared_ptr<TokenGrammar>> promise;
  const auto [entry, is_new] = find_or_add(key, promise.get_future().share());
  if (!is_new) return entry.grammar.get();
  try {
    promise.set_value(compile(build));
  } catch (...) {
    promise.set_exception(std::current_exception());
    forget(entry);
    throw;
  }
  drop_oldest();
  return entry.grammar.get();
}

std::shared_ptr<TokenGrammar> GrammarCache::compile(const Build& build) {
  std::call_once(tokens_made_, [&] { tokens_ = make_tokens_(); });
  const auto start = std::chrono::steady_clock::now();
  GrammarBuilder builder(options_.limits);
  const GrammarBuilder::Expr root = build(builder);
  auto grammar = std::make_shared<TokenGrammar>(compile_grammar(builder, root), tokens_);
  (void)GrammarMatcher(grammar).mask();  // every text needs it
  grammar->compile_ns = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
  const std::lock_guard lock(mutex_);
  ++counts_.compiled;
  counts_.compile_ns += grammar->compile_ns;
  return grammar;
}

/// What cannot be compiled is not kept: the next request with it is told the same.
void GrammarCache::forget(const Entry& entry) {
  const std::lock_guard lock(mutex_);
  ++counts_.refused;
  const auto known = index_.find(entry.key);
  if (known == index_.end() || known->second->number != entry.number) return;
  entries_.erase(known->second);
  index_.erase(known);
}

/// Grammars grow while they are used, so all are looked at. The newest one stays.
void GrammarCache::drop_oldest() {
  const std::lock_guard lock(mutex_);
  counts_.bytes = 0;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    counts_.bytes += 2 * entry->key.size() + bytes_of(entry->grammar);
    const bool is_kept = entry == entries_.begin() || counts_.bytes <= options_.max_bytes;
    if (!is_kept) index_.erase(entry->key);
    entry = is_kept ? std::next(entry) : entries_.erase(entry);
  }
}

GrammarCache::Counts GrammarCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace minfer
