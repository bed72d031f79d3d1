#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "models/grammar/automaton/automaton.h"

namespace minfer {

/// Thompson's automaton of an expression, made from its end to its beginning: build() gives the state from which `expr` leads to `next`.
class Nfa {
 public:
  enum class Kind : uint8_t { accept, dead, byte, call, split };
  struct State {
    Kind kind;
    uint8_t low = 0;
    uint8_t high = 0;
    uint32_t rule = 0;
    uint32_t first = 0;  ///< of byte and call: where it leads; of split: first of targets()
    uint32_t count = 0;
  };

  /// `may_call`: long repetitions use intermediate rules; else this automaton holds everything.
  Nfa(const GrammarBuilder& builder, const RuleNumbers& numbers, bool may_call);

  static constexpr uint32_t kAccept = 0;
  static constexpr uint32_t kDead = 1;
  uint32_t build(GrammarBuilder::Expr expr, uint32_t next);

  const State& state(uint32_t index) const { return states_[index]; }
  size_t size() const { return states_.size(); }
  std::span<const uint32_t> targets(const State& split) const {
    return std::span(targets_).subspan(split.first, split.count);
  }

 private:
  uint32_t add(const State& state);
  uint32_t add_split(std::span<const uint32_t> targets);
  uint32_t build_repeat(GrammarBuilder::Expr expr, uint32_t next);
  uint32_t build_calls(uint32_t rule, int64_t count, uint32_t next);
  uint32_t build_optional_calls(uint32_t rule, int64_t most, uint32_t next);
  uint32_t build_long_repeat(GrammarBuilder::Expr child, int64_t min, int64_t max, uint32_t next);
  const RuleAutomaton& product_of(GrammarBuilder::Expr expr);
  uint32_t embed(const RuleAutomaton& automaton, uint32_t next);
  int64_t size_of(GrammarBuilder::Expr expr);

  const GrammarBuilder& builder_;
  const RuleNumbers& numbers_;
  const bool may_call_;
  std::vector<State> states_;
  std::vector<uint32_t> targets_;
  std::unordered_map<GrammarBuilder::Expr, int64_t> sizes_;  ///< approximate number of states of expressions
  std::unordered_map<GrammarBuilder::Expr, RuleAutomaton> products_;
};

/// The deterministic automaton from `start` on; nullopt if it takes more than `max_states`, or far more work than such states need.
std::optional<RuleAutomaton> determinise(const GrammarBuilder& builder, const Nfa& nfa, uint32_t start,
                                         size_t max_states);

/// The same automaton without empty edges, but not deterministic: as many states as there are bytes and calls.
RuleAutomaton without_empty_edges(const GrammarBuilder& builder, const Nfa& nfa, uint32_t start);

/// The texts of both regular expressions, or those of `a` that `b` lacks. Throws GrammarError beyond the builder's limits.
RuleAutomaton product(const GrammarBuilder& builder, GrammarBuilder::Expr a, GrammarBuilder::Expr b,
                      bool is_difference);
/// True if `text` is one of a regular expression's.
bool has_text(GrammarBuilder& builder, GrammarBuilder::Expr expr, std::string_view text);

}  // namespace minfer
