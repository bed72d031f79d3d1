#include <algorithm>
#include <array>
#include <unordered_map>

#include "kernels/base/error.h"
#include "models/grammar/automaton/nfa.h"

namespace minfer {
namespace {

[[noreturn]] void fail_states(const GrammarBuilder& builder) {
  fail<GrammarError>("the grammar takes more than {} states", builder.limits().max_states);
}

using StateSet = std::vector<uint32_t>;  ///< sorted states of an Nfa that are no splits

struct StateSetHash {
  size_t operator()(const StateSet& set) const {
    uint64_t hash = set.size();
    for (const uint32_t state : set) {
      hash = (hash ^ state) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }
};

/// The states that can be reached over splits.
class Closure {
 public:
  Closure(const GrammarBuilder& builder, const Nfa& nfa)
      : builder_(builder), nfa_(nfa), seen_(nfa.size(), 0) {}

  StateSet of(std::span<const uint32_t> states) {
    const size_t work_before = work_;
    ++round_;
    StateSet found;
    todo_.assign(states.begin(), states.end());
    while (!todo_.empty()) {
      const uint32_t index = todo_.back();
      todo_.pop_back();
      if (seen_[index] == round_) continue;
      seen_[index] = round_;
      const Nfa::State& state = nfa_.state(index);
      ++work_;
      if (state.kind == Nfa::Kind::split) {
        const std::span<const uint32_t> targets = nfa_.targets(state);
        todo_.insert(todo_.end(), targets.begin(), targets.end());
        work_ += targets.size();
      } else if (state.kind != Nfa::Kind::dead) {
        found.push_back(index);
      }
    }
    std::ranges::sort(found);
    builder_.spend(work_ - work_before);
    return found;
  }
  size_t work() const { return work_; }

 private:
  const GrammarBuilder& builder_;
  const Nfa& nfa_;
  std::vector<uint32_t> seen_;
  std::vector<uint32_t> todo_;
  uint32_t round_ = 0;
  size_t work_ = 0;
};

/// A range of bytes by which a set leads to the same states.
struct Step {
  uint8_t low;
  uint8_t high;
  std::vector<uint32_t> targets;  ///< as listed by the states, not closed
};

/// The steps out of a set, ascending; bytes that lead nowhere are left out.
std::vector<Step> steps_out_of(const Nfa& nfa, const StateSet& set) {
  std::array<bool, 257> is_boundary{};
  is_boundary[0] = is_boundary[256] = true;
  for (const uint32_t index : set) {
    const Nfa::State& state = nfa.state(index);
    if (state.kind != Nfa::Kind::byte) continue;
    is_boundary[state.low] = is_boundary[size_t{state.high} + 1] = true;
  }
  std::vector<Step> steps;
  std::array<uint16_t, 257> step_at{};
  for (size_t low = 0; low < 256;) {
    size_t end = low + 1;
    while (!is_boundary[end])
      ++end;
    std::fill(step_at.begin() + static_cast<ptrdiff_t>(low), step_at.begin() + static_cast<ptrdiff_t>(end),
              static_cast<uint16_t>(steps.size()));
    steps.push_back({static_cast<uint8_t>(low), static_cast<uint8_t>(end - 1), {}});
    low = end;
  }
  for (const uint32_t index : set) {
    const Nfa::State& state = nfa.state(index);
    if (state.kind != Nfa::Kind::byte) continue;
    for (size_t i = step_at[state.low]; i <= step_at[state.high]; ++i)
      steps[i].targets.push_back(state.first);
  }
  std::erase_if(steps, [](const Step& step) { return step.targets.empty(); });
  return steps;
}

struct CallOut {
  uint32_t rule;
  std::vector<uint32_t> targets;
};

std::vector<CallOut> calls_out_of(const Nfa& nfa, const StateSet& set) {
  std::vector<CallOut> calls;
  for (const uint32_t index : set) {
    const Nfa::State& state = nfa.state(index);
    if (state.kind != Nfa::Kind::call) continue;
    auto call = std::ranges::find(calls, state.rule, &CallOut::rule);
    if (call == calls.end()) call = calls.insert(calls.end(), {state.rule, {}});
    call->targets.push_back(state.first);
  }
  return calls;
}

void add_edge(std::vector<RuleAutomaton::ByteEdge>& edges, const RuleAutomaton::ByteEdge& edge) {
  if (!edges.empty() && edges.back().target == edge.target && edges.back().high + 1 == edge.low) {
    edges.back().high = edge.high;
  } else {
    edges.push_back(edge);
  }
}

bool accepts(const StateSet& set) {
  return !set.empty() && set.front() == Nfa::kAccept;
}

RuleAutomaton determinised_expr(const GrammarBuilder& builder, GrammarBuilder::Expr expr) {
  const RuleNumbers none;
  Nfa nfa(builder, none, false);
  const uint32_t start = nfa.build(expr, Nfa::kAccept);
  std::optional<RuleAutomaton> automaton = determinise(builder, nfa, start, builder.limits().max_states);
  if (!automaton) fail_states(builder);
  return std::move(*automaton);
}

constexpr uint32_t kNowhere = UINT32_MAX;

/// Both automata at a time; of a difference `b` may have come to its end (kNowhere).
class Product {
 public:
  Product(const GrammarBuilder& builder, const RuleAutomaton& a, const RuleAutomaton& b, bool is_difference)
      : builder_(builder), a_(a), b_(b), is_difference_(is_difference) {}

  RuleAutomaton make() {
    number_of(0, 0);
    for (size_t i = 0; i < pairs_.size(); ++i)
      add_state(pairs_[i].first, pairs_[i].second);
    return std::move(result_);
  }

 private:
  uint32_t number_of(uint32_t a, uint32_t b) {
    const auto [known, is_new] =
        numbers_.try_emplace(uint64_t{a} << 32 | b, static_cast<uint32_t>(pairs_.size()));
    if (is_new) pairs_.emplace_back(a, b);
    builder_.spend(1);
    if (pairs_.size() > builder_.limits().max_states) fail_states(builder_);
    return known->second;
  }

  void add_state(uint32_t a, uint32_t b) {
    RuleAutomaton::State state;
    const bool b_accepts = b != kNowhere && b_.states[b].accepting;
    state.accepting = a_.states[a].accepting && b_accepts != is_difference_;
    for (const RuleAutomaton::ByteEdge& edge : a_.states[a].edges)
      add_edges(edge, b, state.edges);
    result_.states.push_back(std::move(state));
  }

  /// The edge of `a`, divided where `b` goes different ways.
  void add_edges(const RuleAutomaton::ByteEdge& edge, uint32_t b, std::vector<RuleAutomaton::ByteEdge>& out) {
    int low = edge.low;
    const auto without_b = [&](int high) {
      if (is_difference_ && low <= high) {
        add_edge(out,
                 {static_cast<uint8_t>(low), static_cast<uint8_t>(high), number_of(edge.target, kNowhere)});
      }
    };
    if (b != kNowhere) {
      for (const RuleAutomaton::ByteEdge& other : b_.states[b].edges) {
        if (other.high < low) continue;
        if (other.low > edge.high) break;
        without_b(other.low - 1);
        low = std::max<int>(low, other.low);
        const int high = std::min(edge.high, other.high);
        add_edge(out, {static_cast<uint8_t>(low), static_cast<uint8_t>(high),
                       number_of(edge.target, other.target)});
        low = high + 1;
      }
    }
    without_b(edge.high);
  }

  const GrammarBuilder& builder_;
  const RuleAutomaton& a_;
  const RuleAutomaton& b_;
  const bool is_difference_;
  std::unordered_map<uint64_t, uint32_t> numbers_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;
  RuleAutomaton result_;
};

}  // namespace

std::optional<RuleAutomaton> determinise(const GrammarBuilder& builder, const Nfa& nfa, uint32_t start,
                                         size_t max_states) {
  constexpr size_t kWorkOfState = 64;
  const size_t most_work = kWorkOfState * max_states + 16 * nfa.size();
  Closure closure(builder, nfa);
  RuleAutomaton automaton;
  std::unordered_map<StateSet, uint32_t, StateSetHash> numbers;
  std::vector<const StateSet*> sets;
  const auto number_of = [&](const std::vector<uint32_t>& targets) {
    const auto [known, is_new] = numbers.try_emplace(closure.of(targets), static_cast<uint32_t>(sets.size()));
    if (is_new) sets.push_back(&known->first);
    return known->second;
  };
  number_of({start});
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets.size() > max_states || closure.work() > most_work) return std::nullopt;
    RuleAutomaton::State state;
    state.accepting = accepts(*sets[i]);
    for (const Step& step : steps_out_of(nfa, *sets[i]))
      add_edge(state.edges, {step.low, step.high, number_of(step.targets)});
    for (const CallOut& call : calls_out_of(nfa, *sets[i]))
      state.calls.push_back({call.rule, number_of(call.targets)});
    automaton.states.push_back(std::move(state));
  }
  return automaton;
}

RuleAutomaton without_empty_edges(const GrammarBuilder& builder, const Nfa& nfa, uint32_t start) {
  const size_t max_edges = 16 * builder.limits().max_states;
  Closure closure(builder, nfa);
  RuleAutomaton automaton;
  std::unordered_map<uint32_t, uint32_t> numbers;
  std::vector<uint32_t> entries;
  size_t num_edges = 0;
  const auto number_of = [&](uint32_t entry) {
    const auto [known, is_new] = numbers.try_emplace(entry, static_cast<uint32_t>(entries.size()));
    if (is_new) entries.push_back(entry);
    return known->second;
  };
  number_of(start);
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries.size() > builder.limits().max_states) fail_states(builder);
    RuleAutomaton::State state;
    const uint32_t entry = entries[i];
    for (const uint32_t index : closure.of({&entry, 1})) {
      const Nfa::State& from = nfa.state(index);
      if (++num_edges > max_edges) fail<GrammarError>("the grammar takes more than {} edges", max_edges);
      if (from.kind == Nfa::Kind::accept) state.accepting = true;
      if (from.kind == Nfa::Kind::byte) state.edges.push_back({from.low, from.high, number_of(from.first)});
      if (from.kind == Nfa::Kind::call) state.calls.push_back({from.rule, number_of(from.first)});
    }
    std::ranges::sort(state.edges, {}, &RuleAutomaton::ByteEdge::low);
    automaton.states.push_back(std::move(state));
  }
  return automaton;
}

RuleAutomaton make_automaton(const GrammarBuilder& builder, GrammarBuilder::Expr expr,
                             const RuleNumbers& numbers) {
  Nfa nfa(builder, numbers, true);
  const uint32_t start = nfa.build(expr, Nfa::kAccept);
  const size_t most_states = std::min(builder.limits().max_states, 4 * nfa.size() + 1024);
  if (std::optional<RuleAutomaton> automaton = determinise(builder, nfa, start, most_states))
    return std::move(*automaton);
  return without_empty_edges(builder, nfa, start);
}

RuleAutomaton chain_of_calls(uint32_t rule, int64_t count) {
  RuleAutomaton automaton;
  automaton.states.resize(static_cast<size_t>(count) + 1);
  for (uint32_t i = 0; i < count; ++i)
    automaton.states[i].calls.push_back({rule, i + 1});
  automaton.states.back().accepting = true;
  return automaton;
}

RuleAutomaton product(const GrammarBuilder& builder, GrammarBuilder::Expr a, GrammarBuilder::Expr b,
                      bool is_difference) {
  const RuleAutomaton of_a = determinised_expr(builder, a), of_b = determinised_expr(builder, b);
  return Product(builder, of_a, of_b, is_difference).make();
}

bool has_text(GrammarBuilder& builder, GrammarBuilder::Expr expr, std::string_view text) {
  const RuleAutomaton common = product(builder, builder.literal(text), expr, false);
  return std::ranges::any_of(common.states, &RuleAutomaton::State::accepting);
}

}  // namespace minfer
