#include "models/grammar/token_grammar.h"

#include <algorithm>
#include <unordered_set>
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

/// The states of one grammar that texts have come to, behind a lock.
class GrammarStates {
 public:
  GrammarStates(const Grammar& grammar, const TokenTrie& tokens, std::shared_ptr<GrammarMemory> memory)
      : grammar_(grammar),
        tokens_(tokens),
        memory_(std::move(memory)),
        table_(std::make_unique<StateTable>(grammar, tokens)) {
    bytes_ = table_->bytes();
    memory_->add(*this);
  }
  ~GrammarStates() { memory_->remove(*this); }
  GrammarStates(const GrammarStates&) = delete;
  GrammarStates& operator=(const GrammarStates&) = delete;

  /// Calls use(table, place, work).
  template <class Use>
  auto use(uint32_t& place, GrammarWork* work, const Use& use) {
    const Using turn(*this);
    // Whoever goes on behind a pause needs what has been made since.
    if (table_->bytes() > kMostTableBytes && (work == nullptr || work->spent() == 0)) begin_anew();
    GrammarWork whole;
    return use(*table_, place, work != nullptr ? *work : whole);
  }
  template <class Look>
  auto look(const Look& look) const {
    const std::lock_guard lock(mutex_);
    return look(std::as_const(*table_));
  }

  void add(uint32_t& place, const uint32_t* like) {
    const std::lock_guard lock(mutex_);
    place = like != nullptr ? *like : table_->start();
    places_.insert(&place);
  }
  void remove(uint32_t& place) {
    const std::lock_guard lock(mutex_);
    places_.erase(&place);
  }

  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  friend class GrammarMemory;

  /// Holds the lock; tells the memory of the use without it.
  class Using {
   public:
    explicit Using(GrammarStates& states) : states_(states), lock_(states.mutex_) {}
    ~Using() {
      states_.note_bytes();
      lock_.unlock();
      states_.memory_->note_use(states_);
    }
    Using(const Using&) = delete;
    Using& operator=(const Using&) = delete;

   private:
    GrammarStates& states_;
    std::unique_lock<std::mutex> lock_;
  };

  void note_bytes() {
    const size_t before = bytes_.exchange(table_->bytes());
    memory_->bytes_ += table_->bytes() - before;
  }

  /// With the states alone in which texts stand.
  void begin_anew() {
    std::vector<uint32_t> states;
    for (const uint32_t* place : places_)
      states.push_back(*place);
    auto table = std::make_unique<StateTable>(grammar_, tokens_);
    const std::vector<uint32_t> imported = table->import(*table_, states);
    size_t next = 0;
    for (uint32_t* place : places_)
      *place = imported[next++];
    table_ = std::move(table);
    note_bytes();
  }

  /// Not while it is in use, or where there is no memory to do so.
  void try_begin_anew() noexcept {
    const std::unique_lock lock(mutex_, std::try_to_lock);
    try {
      if (lock.owns_lock()) begin_anew();
    } catch (const std::exception&) {  // it goes on with what it has
    }
  }

  const Grammar& grammar_;
  const TokenTrie& tokens_;
  const std::shared_ptr<GrammarMemory> memory_;
  mutable std::mutex mutex_;
  std::unique_ptr<StateTable> table_;
  std::unordered_set<uint32_t*> places_;
  std::atomic<size_t> bytes_ = 0;  ///< of the table when it was last used
  std::atomic<uint64_t> last_use_ = 0;
  uint64_t sorted_by_ = 0;  ///< under the memory's lock
};

void GrammarMemory::add(GrammarStates& states) {
  const std::lock_guard lock(mutex_);
  states_.push_back(&states);
  bytes_ += states.bytes();
  grammar_bytes_ += states.grammar_.bytes();
}

void GrammarMemory::remove(GrammarStates& states) {
  const std::lock_guard lock(mutex_);
  std::erase(states_, &states);
  bytes_ -= states.bytes();
  grammar_bytes_ -= states.grammar_.bytes();
}

/// Makes room down to three quarters, so that it is seldom. Grammars in use at this moment keep what they have.
void GrammarMemory::note_use(GrammarStates& user) noexcept {
  user.last_use_ = ++num_uses_;
  if (bytes() <= most_bytes_) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another thread makes room
  for (GrammarStates* states : states_)
    states->sorted_by_ = states->last_use_;
  std::ranges::sort(states_, {}, &GrammarStates::sorted_by_);
  for (GrammarStates* states : states_) {
    if (bytes() <= most_bytes_ / 4 * 3) return;
    if (states != &user && states->bytes() > kLeastTableBytes) states->try_begin_anew();
  }
}

TokenGrammar::TokenGrammar(std::shared_ptr<const Grammar> grammar, std::shared_ptr<const TokenTrie> tokens,
                           std::shared_ptr<GrammarMemory> memory)
    : grammar_(std::move(grammar)),
      tokens_(std::move(tokens)),
      states_(std::make_unique<GrammarStates>(*grammar_, *tokens_, std::move(memory))) {}

TokenGrammar::~TokenGrammar() = default;

size_t TokenGrammar::bytes() const {
  return grammar_->bytes() + states_->bytes();
}

GrammarMatcher::GrammarMatcher(std::shared_ptr<TokenGrammar> grammar)
    : grammar_(std::move(grammar)), place_(std::make_unique<uint32_t>()) {
  grammar_->states_->add(*place_, nullptr);
}

GrammarMatcher::GrammarMatcher(const GrammarMatcher& other)
    : grammar_(other.grammar_), place_(std::make_unique<uint32_t>()) {
  grammar_->states_->add(*place_, other.place_.get());
}

GrammarMatcher& GrammarMatcher::operator=(const GrammarMatcher& other) {
  GrammarMatcher copy(other);
  std::swap(grammar_, copy.grammar_);
  std::swap(place_, copy.place_);
  return *this;
}

GrammarMatcher::~GrammarMatcher() {
  grammar_->states_->remove(*place_);
}

bool GrammarMatcher::accept(TokenId token, GrammarWork* work) {
  if (token < 0 || token >= grammar_->tokens_->vocab_size()) return false;
  const std::string_view bytes = grammar_->tokens_->bytes(token);
  return !bytes.empty() && accept_bytes(bytes, work);
}

bool GrammarMatcher::accept_bytes(std::string_view bytes, GrammarWork* work) {
  return grammar_->states_->use(*place_, work, [&](StateTable& table, uint32_t& place, GrammarWork& spent) {
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
  return grammar_->states_->use(*place_, work, [&](StateTable& table, uint32_t place, GrammarWork& spent) {
    return table.mask(place, spent);
  });
}

bool GrammarMatcher::may_end() const {
  return grammar_->states_->look([&](const StateTable& table) { return table.may_end(*place_); });
}

bool GrammarMatcher::must_end() const {
  return grammar_->states_->look([&](const StateTable& table) { return table.must_end(*place_); });
}

std::string GrammarMatcher::forced_bytes(size_t limit, GrammarWork* work) const {
  return grammar_->states_->use(*place_, work, [&](StateTable& table, uint32_t place, GrammarWork& spent) {
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
