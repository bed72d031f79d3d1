#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "models/grammar/grammar.h"

namespace minfer {

/// The automaton of one rule while a grammar is compiled. [0] is its first state.
struct RuleAutomaton {
  using ByteEdge = Grammar::ByteEdge;
  struct Call {
    uint32_t rule;  ///< number in the grammar being compiled
    uint32_t target;
  };
  struct State {
    std::vector<ByteEdge> edges;  ///< sorted; disjoint if the automaton is deterministic
    std::vector<Call> calls;
    bool accepting = false;
  };
  std::vector<State> states;
};

/// Gives the numbers by which rules are called: the builder's rules, and rules for `count` repetitions of an expression.
struct RuleNumbers {
  std::function<uint32_t(GrammarBuilder::Rule)> of_rule;
  std::function<uint32_t(GrammarBuilder::Expr, int64_t count)> of_repeated;
};

/// The automaton of `expr`: Thompson's construction, then the subset construction (Rabin & Scott 1959). If that takes far more
/// states, only the empty edges are removed instead. Throws GrammarError beyond the limits.
RuleAutomaton make_automaton(const GrammarBuilder& builder, GrammarBuilder::Expr expr,
                             const RuleNumbers& numbers);

/// A chain of `count` calls of a rule.
RuleAutomaton chain_of_calls(uint32_t rule, int64_t count);

}  // namespace minfer
