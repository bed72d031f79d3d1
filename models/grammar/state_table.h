#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "models/grammar/grammar.h"
#include "models/grammar/token_grammar.h"
#include "models/grammar/token_trie.h"

namespace minfer {

/// A grammar as one deterministic automaton. It is made lazily, as far as texts lead (like RE2's for regular expressions). A state is the
/// set of places where a text may be; a place is a state of the grammar and the calls that it returns to. For each state, the table keeps
/// the targets of bytes and the tokens that may come next. One thread at a time.
class StateTable {
 public:
  /// Both arguments must outlive the table.
  StateTable(const Grammar& grammar, const TokenTrie& tokens);

  static constexpr uint32_t kDead = 0;  ///< no text goes on here
  uint32_t start() const { return start_; }
  /// Counts the making of states in `work`. Throws GrammarError if a text may be in too many places at a time, if the states take
  /// too much memory, or if `work` exceeds its limit. Throws GrammarPaused too. Then, as in the other functions, results so far are kept.
  uint32_t next(uint32_t state, uint8_t byte, GrammarWork& work);
  bool may_end(uint32_t state) const { return states_[state].may_end; }
  bool must_end(uint32_t state) const { return states_[state].may_end && states_[state].places.empty(); }
  /// The byte that follows, if only one byte can follow.
  std::optional<uint8_t> only_byte(uint32_t state, GrammarWork& work);
  /// Throws like next(). After GrammarPaused, the next call goes on at the same point.
  std::shared_ptr<const TokenMask> mask(uint32_t state, GrammarWork& work);

  /// The states of this table that equal `states` of another table of the same grammar. Copies the masks of these states and of the start.
  std::vector<uint32_t> import(const StateTable& other, std::span<const uint32_t> states);
  size_t bytes() const { return bytes_; }  ///< approximate memory

 private:
  /// A call that has been made: its return state, and the outer calls. [0] means no call.
  struct Frame {
    uint32_t return_state;
    uint32_t outer;
    uint32_t depth;
  };
  struct Place {
    uint32_t state;  ///< of the grammar
    uint32_t frame;
    auto operator<=>(const Place&) const = default;
  };
  /// Bytes of [low, high] lead to `target`.
  struct Step {
    uint8_t low;
    uint8_t high;
    uint32_t target;
  };
  /// A mask that is being made. The tokens before `node` in the trees have been decided.
  struct Walk {
    struct Level {
      uint32_t end;
      uint32_t state;
    };
    size_t most_states;  ///< of the table; beyond it, the walk stops asking if all plain tokens may come
    std::shared_ptr<TokenMask> mask = {};  ///< null while the walk asks that
    std::span<const TokenTrie::Tree* const> trees = {};
    uint32_t node = 1;
    std::vector<Level> path = {};  ///< the nodes around `node`, and the states that they lead to
  };
  struct State {
    std::pmr::vector<Place> places;  ///< sorted; only places from which a byte may come
    bool may_end = false;
    bool knows_only = false;
    std::optional<uint8_t> only = {};       ///< see only_byte(), once it is known
    uint8_t proven_plain = 0;               ///< all plain texts of this many characters may follow
    uint8_t refuted_plain = UINT8_MAX;      ///< with this many, not all may follow, or it is not known
    std::pmr::vector<Step> steps;           ///< steps asked for so far; disjoint
    std::unique_ptr<uint32_t[]> next = {};  ///< [256], kUnknown if not asked for yet; replaces many steps
    std::shared_ptr<const TokenMask> mask = {};
    std::unique_ptr<Walk> walk = {};
  };
  static constexpr uint32_t kUnknown = UINT32_MAX;

  uint32_t frame(uint32_t return_state, uint32_t outer);
  uint32_t close(std::vector<Place> todo, GrammarWork& work);
  uint32_t intern(std::span<const Place> places, bool may_end);
  uint32_t known_next(const State& state, uint8_t byte) const;
  void keep_step(State& state, Step step);
  uint32_t find_next(uint32_t state, uint8_t byte, GrammarWork& work);
  bool add_steps(std::span<const uint32_t> states, uint8_t low, uint8_t high, std::vector<uint32_t>& out,
                 GrammarWork& work);
  bool add_plain_steps(uint32_t state, std::vector<uint32_t>& out, GrammarWork& work);
  bool takes_plain(uint32_t state, uint8_t characters, GrammarWork& work);
  void choose_trees(Walk& walk, uint32_t state, GrammarWork& work);
  void keep_mask(uint32_t state, std::shared_ptr<const TokenMask> mask);
  void go_on(Walk& walk, uint32_t state, GrammarWork& work);

  const Grammar& grammar_;
  const TokenTrie& tokens_;
  const std::array<const TokenTrie::Tree*, 2> trees_;
  size_t most_plain_states_ = 0;  ///< Walk::most_states of the walk that asks
  /// Memory of small parts, freed together: freeing the parts of a large table one by one takes tens of ms.
  std::pmr::monotonic_buffer_resource memory_;
  std::vector<Frame> frames_;
  std::pmr::unordered_map<uint64_t, uint32_t> frame_index_{&memory_};  ///< by return state and outer frame
  std::vector<State> states_;
  std::pmr::unordered_multimap<uint64_t, uint32_t> state_index_{&memory_};  ///< by hash of their places
  uint32_t start_ = kDead;
  size_t bytes_ = 0;
};

}  // namespace minfer
