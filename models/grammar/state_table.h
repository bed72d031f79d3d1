#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/grammar/grammar.h"
#include "models/grammar/token_grammar.h"
#include "models/grammar/token_trie.h"

namespace minfer {

/// A grammar as one deterministic automaton that is made as far as texts lead (as RE2 does for regular expressions): a state is the set of
/// places where a text may stand, each a state of the grammar and the calls that it returns to. Keeps for each state where bytes lead and
/// which tokens may come. One thread at a time.
class StateTable {
 public:
  /// Both outlive the table.
  StateTable(const Grammar& grammar, const TokenTrie& tokens);

  static constexpr uint32_t kDead = 0;  ///< no text goes on here
  uint32_t start() const { return start_; }
  /// Throws GrammarError where a text may stand in too many places at a time.
  uint32_t next(uint32_t state, uint8_t byte);
  bool may_end(uint32_t state) const { return states_[state].may_end; }
  bool must_end(uint32_t state) const { return states_[state].may_end && states_[state].places.empty(); }
  /// The one byte that can follow, if it is the only one.
  std::optional<uint8_t> only_byte(uint32_t state) const;
  std::shared_ptr<const TokenMask> mask(uint32_t state);

  /// The state of this table that is the same as `state` of another one of the same grammar.
  uint32_t import(const StateTable& other, uint32_t state);
  size_t bytes() const { return bytes_; }  ///< of memory, about

 private:
  /// A call that has been made: where it returns to, and the calls around it. [0] stands for none.
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
  struct State {
    std::vector<Place> places;  ///< sorted; those from which a byte may come
    bool may_end = false;
    uint8_t proven_plain = 0;           ///< plain texts of so many characters may follow, whatever they are
    uint8_t refuted_plain = UINT8_MAX;  ///< not all plain texts of so many
    std::unique_ptr<uint32_t[]> next = {};  ///< [256], kUnknown where nobody has asked; null: nowhere yet
    std::shared_ptr<const TokenMask> mask = {};
  };
  static constexpr uint32_t kUnknown = UINT32_MAX;

  uint32_t frame(uint32_t return_state, uint32_t outer);
  uint32_t close(std::vector<Place> todo);
  uint32_t intern(std::vector<Place> places, bool may_end);
  uint32_t find_next(uint32_t state, uint8_t byte);
  bool add_steps(std::span<const uint32_t> states, uint8_t low, uint8_t high, std::vector<uint32_t>& out);
  bool add_plain_steps(uint32_t state, std::vector<uint32_t>& out);
  bool takes_plain(uint32_t state, uint8_t characters);
  void walk(const TokenTrie::Tree& tree, uint32_t state, TokenMask& mask);
  uint32_t imported_frame(const StateTable& other, uint32_t frame_of_other);

  const Grammar& grammar_;
  const TokenTrie& tokens_;
  std::vector<Frame> frames_;
  std::unordered_map<uint64_t, uint32_t> frame_index_;  ///< by return state and outer frame
  std::vector<State> states_;
  std::unordered_multimap<uint64_t, uint32_t> state_index_;  ///< by hash of their places
  uint32_t start_ = kDead;
  size_t bytes_ = 0;
};

}  // namespace minfer
