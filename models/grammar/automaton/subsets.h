#pragma once

#include <optional>

#include "models/grammar/automaton/automaton.h"
#include "models/grammar/automaton/nfa.h"

namespace minfer {

/// The deterministic automaton of what `start` leads to; nullopt if it takes more than `max_states`, or far more work than these ask for.
std::optional<RuleAutomaton> determinise(const GrammarBuilder& builder, const Nfa& nfa, uint32_t start,
                                         size_t max_states);

/// The same without empty edges only: as many states as there are bytes and calls.
RuleAutomaton without_empty_edges(const GrammarBuilder& builder, const Nfa& nfa, uint32_t start);

// Of regular expressions, by the product of their deterministic automata. Throw GrammarError beyond the builder's limits.
RuleAutomaton intersection(const GrammarBuilder& builder, GrammarBuilder::Expr a, GrammarBuilder::Expr b);
RuleAutomaton difference(const GrammarBuilder& builder, GrammarBuilder::Expr a, GrammarBuilder::Expr b);

}  // namespace minfer
