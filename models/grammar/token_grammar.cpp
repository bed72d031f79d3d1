#include "models/grammar/token_grammar.h"

#include <mutex>
#include <utility>

#include "models/grammar/state_table.h"

namespace minfer {
namespace {

/// Of the states that one grammar keeps. Beyond, it begins anew: what texts still need is made again.
constexpr size_t kMostTableBytes = 32u << 20;

}  // namespace

/// The states of one grammar that texts have come to, behind a lock.
class GrammarStates {
 public:
  GrammarStates(const Grammar& grammar, const TokenTrie& tokens)
      : grammar_(grammar), tokens_(tokens), table_(std::make_shared<StateTable>(grammar, tokens)) {}

  /// Calls use(table) with the place's table, the newest one if that has been replaced.
  template <class Place, class Use>
  auto use(Place& place, const Use& use) {
    const std::lock_guard lock(mutex_);
    if (table_->bytes() > kMostTableBytes) table_ = std::make_shared<StateTable>(grammar_, tokens_);
    if (place.table == nullptr) {
      place.state = table_->start();
      place.table = table_;
    } else if (place.table != table_) {
      place.state = table_->import(*place.table, place.state);
      place.table = table_;
    }
    return use(*table_);
  }

  size_t bytes() const {
    const std::lock_guard lock(mutex_);
    return table_->bytes();
  }

 private:
  const Grammar& grammar_;
  const TokenTrie& tokens_;
  mutable std::mutex mutex_;
  std::shared_ptr<StateTable> table_;
};

struct GrammarMatcher::Place {
  std::shared_ptr<StateTable> table;
  uint32_t state = 0;
};

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens)
    : grammar_(std::move(grammar)),
      tokens_(std::move(tokens)),
      states_(std::make_unique<GrammarStates>(*grammar_, *tokens_)) {}

TokenGrammar::~TokenGrammar() = default;

size_t TokenGrammar::bytes() const {
  return grammar_->bytes() + states_->bytes();
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<TokenGrammar> grammar)
    : grammar_(std::move(grammar)), place_(std::make_unique<Place>()) {
  grammar_->states_->use(*place_, [](const StateTable&) {});
}

GrammarMatcher::GrammarMatcher(const GrammarMatcher& other)
    : grammar_(other.grammar_), place_(std::make_unique<Place>(*other.place_)) {}

GrammarMatcher& GrammarMatcher::operator=(const GrammarMatcher& other) {
  grammar_ = other.grammar_;
  *place_ = *other.place_;
  return *this;
}

GrammarMatcher::~GrammarMatcher() = default;

bool GrammarMatcher::accept(TokenId token) {
  if (token < 0 || token >= grammar_->tokens_->vocab_size()) return false;
  const std::string_view bytes = grammar_->tokens_->bytes(token);
  return !bytes.empty() && accept_bytes(bytes);
}

bool GrammarMatcher::accept_bytes(std::string_view bytes) {
  return grammar_->states_->use(*place_, [&](StateTable& table) {
    uint32_t state = place_->state;
    for (const char byte : bytes) {
      state = table.next(state, static_cast<uint8_t>(byte));
      if (state == StateTable::kDead) return false;
    }
    place_->state = state;
    return true;
  });
}

std::shared_ptr<const TokenMask> GrammarMatcher::mask() {
  return grammar_->states_->use(*place_, [&](StateTable& table) { return table.mask(place_->state); });
}

bool GrammarMatcher::may_end() const {
  return grammar_->states_->use(*place_,
                                [&](const StateTable& table) { return table.may_end(place_->state); });
}

bool GrammarMatcher::must_end() const {
  return grammar_->states_->use(*place_,
                                [&](const StateTable& table) { return table.must_end(place_->state); });
}

std::string GrammarMatcher::forced_bytes(size_t limit) const {
  return grammar_->states_->use(*place_, [&](StateTable& table) {
    std::string forced;
    uint32_t state = place_->state;
    while (forced.size() < limit && !table.may_end(state)) {
      const std::optional<uint8_t> byte = table.only_byte(state);
      if (!byte) break;
      forced += static_cast<char>(*byte);
      state = table.next(state, *byte);
    }
    return forced;
  });
}

}  // namespace minfer
