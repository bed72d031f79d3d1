#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "models/grammar/grammar_builder.h"

namespace minfer {

/// Precedes the text of a control token that a grammar names. It never occurs in UTF-8.
inline constexpr uint8_t kControlByte = 0xff;

/// A compiled grammar. Its rules are deterministic automata over bytes, and their edges may also call rules (a recursive transition
/// network, Woods 1970). The states of all rules share one numbering. Immutable: any thread may use it.
class Grammar {
 public:
  struct ByteEdge {
    uint8_t low;
    uint8_t high;
    uint32_t target;
  };
  struct Call {
    uint32_t rule_start;  ///< the called rule's first state
    uint32_t target;      ///< the state after the rule has been passed
  };
  struct State {
    uint32_t first_edge = 0;
    uint32_t first_call = 0;
    uint32_t num_edges = 0;  ///< sorted by `low`; edges of a rule that was left ambiguous may overlap
    uint32_t num_calls = 0;
    bool accepting = false;  ///< the rule may end here
  };

  uint32_t start() const { return start_; }
  size_t num_states() const { return states_.size(); }
  const State& state(uint32_t index) const { return states_[index]; }
  std::span<const ByteEdge> edges(const State& state) const {
    return std::span(edges_).subspan(state.first_edge, state.num_edges);
  }
  std::span<const Call> calls(const State& state) const {
    return std::span(calls_).subspan(state.first_call, state.num_calls);
  }
  size_t bytes() const;  ///< approximate memory

 private:
  friend class GrammarCompiler;
  uint32_t start_ = 0;
  std::vector<State> states_;
  std::vector<ByteEdge> edges_;
  std::vector<Call> calls_;
};

/// Compiles the grammar of the texts of `root`. Throws GrammarError naming a rule that is not defined or begins with itself
/// (left recursion); also beyond the limits, and if no text at all is left.
std::shared_ptr<const Grammar> compile_grammar(const GrammarBuilder& builder, GrammarBuilder::Expr root);

}  // namespace minfer
