#include "models/grammar/token_grammar.h"

#include <algorithm>
#include <utility>

#include "kernels/base/error.h"
#include "models/grammar/state_table.h"

namespace minfer {
namespace {

/// The most memory for the states of one grammar. Beyond it, the table begins anew when the next text goes on.
constexpr size_t kMostTableBytes = 16u << 20;
/// The size of a table that is too small to be worth dropping.
constexpr size_t kLeastTableBytes = 64u << 10;

}  // namespace

void GrammarWork::fail_work() {
  fail<GrammarError>(
      "the grammar is too ambiguous: one token takes more than {} steps to judge what may follow", kMost);
}

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
                           std::shared_ptr<GrammarMemory> memory)
    : grammar_(std::move(grammar)),
      tokens_(std::move(tokens)),
      memory_(std::move(memory)),
      table_(std::make_unique<StateTable>(*grammar_, *tokens_)),
      state_bytes_(table_->bytes()) {
  memory_->add(*this);
}

TokenGrammar::~TokenGrammar() {
  memory_->remove(*this);
}

/// Holds the lock; tells the memory of the use without it.
class TokenGrammar::Using {
 public:
  explicit Using(TokenGrammar& grammar) : grammar_(grammar), lock_(grammar.mutex_) {}
  ~Using() {
    grammar_.note_bytes();
    lock_.unlock();
    grammar_.memory_->note_use(grammar_);
  }
  Using(const Using&) = delete;
  Using& operator=(const Using&) = delete;

 private:
  TokenGrammar& grammar_;
  std::unique_lock<std::mutex> lock_;
};

template <class Use>
auto TokenGrammar::use(uint32_t& place, GrammarWork* work, const Use& use) {
  const Using turn(*this);
  // Whoever goes on behind a pause needs what has been made since.
  if (table_->bytes() > kMostTableBytes && (work == nullptr || work->spent() == 0)) begin_anew();
  GrammarWork whole;
  return use(*table_, place, work != nullptr ? *work : whole);
}

template <class Look>
auto TokenGrammar::look(const Look& look) const {
  const std::lock_guard lock(mutex_);
  return look(std::as_const(*table_));
}

void TokenGrammar::add_place(uint32_t& place, const uint32_t* like) {
  const std::lock_guard lock(mutex_);
  place = like != nullptr ? *like : table_->start();
  places_.insert(&place);
}

void TokenGrammar::remove_place(uint32_t& place) {
  const std::lock_guard lock(mutex_);
  places_.erase(&place);
}

void TokenGrammar::note_bytes() {
  const size_t before = state_bytes_.exchange(table_->bytes());
  memory_->bytes_ += table_->bytes() - before;
}

/// With the states alone in which texts stand.
void TokenGrammar::begin_anew() {
  std::vector<uint32_t> states;
  for (const uint32_t* place : places_)
    states.push_back(*place);
  auto table = std::make_unique<StateTable>(*grammar_, *tokens_);
  const std::vector<uint32_t> imported = table->import(*table_, states);
  size_t next = 0;
  for (uint32_t* place : places_)
    *place = imported[next++];
  table_ = std::move(table);
  note_bytes();
}

/// Not while it is in use, or where there is no memory to do so.
void TokenGrammar::try_begin_anew() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  try {
    if (lock.owns_lock()) begin_anew();
  } catch (const std::exception&) {  // it goes on with what it has
  }
}

void GrammarMemory::add(TokenGrammar& grammar) {
  const std::lock_guard lock(mutex_);
  grammars_.push_back(&grammar);
  bytes_ += grammar.state_bytes_;
  grammar_bytes_ += grammar.bytes_without_states();
}

void GrammarMemory::remove(TokenGrammar& grammar) {
  const std::lock_guard lock(mutex_);
  std::erase(grammars_, &grammar);
  bytes_ -= grammar.state_bytes_;
  grammar_bytes_ -= grammar.bytes_without_states();
}

/// Makes room down to three quarters, so that it is seldom. Grammars in use at this moment keep what they have.
void GrammarMemory::note_use(TokenGrammar& user) noexcept {
  user.last_use_ = ++num_uses_;
  if (bytes() <= most_bytes_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread makes room
  for (TokenGrammar* grammar : grammars_)
    grammar->sorted_by_ = grammar->last_use_;
  std::ranges::sort(grammars_, {}, &TokenGrammar::sorted_by_);
  for (TokenGrammar* grammar : grammars_) {
    if (bytes() <= most_bytes_ / 4 * 3) return;
    if (grammar != &user && grammar->state_bytes_ > kLeastTableBytes) grammar->try_begin_anew();
  }
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<TokenGrammar> grammar)
    : grammar_(std::move(grammar)), place_(std::make_unique<uint32_t>()) {
  grammar_->add_place(*place_, nullptr);
}

GrammarMatcher::GrammarMatcher(const GrammarMatcher& other)
    : grammar_(other.grammar_), place_(std::make_unique<uint32_t>()) {
  grammar_->add_place(*place_, other.place_.get());
}

GrammarMatcher& GrammarMatcher::operator=(const GrammarMatcher& other) {
  GrammarMatcher copy(other);
  std::swap(grammar_, copy.grammar_);
  std::swap(place_, copy.place_);
  return *this;
}

GrammarMatcher::~GrammarMatcher() {
  grammar_->remove_place(*place_);
}

bool GrammarMatcher::accept(TokenId token, GrammarWork* work) {
  if (token < 0 || token >= grammar_->tokens_->vocab_size()) return false;
  const std::string_view bytes = grammar_->tokens_->bytes(token);
  return !bytes.empty() && accept_bytes(bytes, work);
}

bool GrammarMatcher::accept_bytes(std::string_view bytes, GrammarWork* work) {
  return grammar_->use(*place_, work, [&](StateTable& table, uint32_t& place, GrammarWork& spent) {
    uint32_t state = place;
    for (const char byte : bytes) {
      state = table.next(state, static_cast<uint8_t>(byte), spent);
      if (state == StateTable::kDead) return false;
    }
    place = state;
    return true;
  });
}

std::shared_ptr<const TokenMask> GrammarMatcher::mask(GrammarWork* work) {
  return grammar_->use(*place_, work, [&](StateTable& table, uint32_t place, GrammarWork& spent) {
    return table.mask(place, spent);
  });
}

bool GrammarMatcher::may_end() const {
  return grammar_->look([&](const StateTable& table) { return table.may_end(*place_); });
}

bool GrammarMatcher::must_end() const {
  return grammar_->look([&](const StateTable& table) { return table.must_end(*place_); });
}

std::string GrammarMatcher::forced_bytes(size_t limit, GrammarWork* work) const {
  return grammar_->use(*place_, work, [&](StateTable& table, uint32_t place, GrammarWork& spent) {
    std::string forced;
    while (forced.size() < limit && !table.may_end(place)) {
      const std::optional<uint8_t> byte = table.only_byte(place, spent);
      if (!byte) break;
      forced += static_cast<char>(*byte);
      place = table.next(place, *byte, spent);
    }
    return forced;
  });
}

}  // namespace minfer
