#include <algorithm>
#include <map>
#include <unordered_map>

#include "kernels/base/error.h"
#include "models/grammar/automaton/automaton.h"
#include "models/grammar/grammar.h"

namespace minfer {

/// Makes the automata of all rules that `root` needs, leaves out what leads to no text, and lays them out in one table.
class GrammarCompiler {
 public:
  explicit GrammarCompiler(const GrammarBuilder& builder) : builder_(builder) {
    numbers_.of_rule = [this](GrammarBuilder::Rule rule) { return number_of(rule); };
    numbers_.of_repeated = [this](GrammarBuilder::Expr expr, int64_t count) {
      return number_of(expr, count);
    };
  }

  std::shared_ptr<const Grammar> compile(GrammarBuilder::Expr root) {
    number_of(root, 1);
    for (size_t i = 0; i < rules_.size(); ++i)
      add_automaton(i);
    refuse_left_recursion();
    find_productive();
    if (!productive_[rules_.front().first_state]) fail<GrammarError>("the grammar allows no text at all");
    return laid_out();
  }

 private:
  struct Rule {
    GrammarBuilder::Rule rule = -1;  ///< of the builder, or
    GrammarBuilder::Expr expr = -1;  ///< this expression
    int64_t count = 1;               ///< this many times
    uint32_t first_state = 0;
    uint32_t num_states = 0;
  };
  using State = RuleAutomaton::State;

  uint32_t number_of(GrammarBuilder::Rule rule) {
    const auto [known, is_new] = by_rule_.try_emplace(rule, static_cast<uint32_t>(rules_.size()));
    if (is_new) rules_.push_back({.rule = rule});
    return known->second;
  }

  uint32_t number_of(GrammarBuilder::Expr expr, int64_t count) {
    const auto [known, is_new] =
        by_expr_.try_emplace(std::pair(expr, count), static_cast<uint32_t>(rules_.size()));
    if (is_new) rules_.push_back({.expr = expr, .count = count});
    return known->second;
  }

  std::string name_of(const Rule& rule) const {
    return rule.rule >= 0 ? builder_.rule_name(rule.rule) : "a repetition";
  }

  void add_automaton(size_t index) {
    const Rule rule = rules_[index];
    if (rule.rule >= 0 && !builder_.is_defined(rule.rule))
      fail<GrammarError>("rule {} is not defined", name_of(rule));
    const GrammarBuilder::Expr expr = rule.rule >= 0 ? builder_.rule_expr(rule.rule) : rule.expr;
    RuleAutomaton automaton = rule.count > 1 ? chain_of_calls(number_of(expr, 1), rule.count)
                                             : make_automaton(builder_, expr, numbers_);
    const auto first = static_cast<uint32_t>(states_.size());
    if (states_.size() + automaton.states.size() > builder_.limits().max_states)
      fail<GrammarError>("the grammar takes more than {} states", builder_.limits().max_states);
    for (State& state : automaton.states) {
      for (RuleAutomaton::ByteEdge& edge : state.edges)
        edge.target += first;
      for (RuleAutomaton::Call& call : state.calls)
        call.target += first;
      states_.push_back(std::move(state));
    }
    rules_[index].first_state = first;
    rules_[index].num_states = static_cast<uint32_t>(automaton.states.size());
  }

  uint32_t start_of(uint32_t rule) const { return rules_[rule].first_state; }

  /// Calls visit(state) for what can be reached from a rule's start without a byte, over rules known to allow the empty text.
  template <class Visit>
  void visit_left(const Rule& rule, const std::vector<bool>& nullable, const Visit& visit) const {
    std::vector<uint32_t> todo = {rule.first_state};
    std::vector<bool> seen(rule.num_states);
    while (!todo.empty()) {
      const uint32_t index = todo.back();
      todo.pop_back();
      if (seen[index - rule.first_state]) continue;
      seen[index - rule.first_state] = true;
      visit(states_[index]);
      for (const RuleAutomaton::Call& call : states_[index].calls) {
        if (nullable[call.rule]) todo.push_back(call.target);
      }
    }
  }

  std::vector<bool> nullable_rules() const {
    std::vector<bool> nullable(rules_.size());
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules_.size(); ++i) {
        if (nullable[i]) continue;
        bool may_be_empty = false;
        visit_left(rules_[i], nullable, [&](const State& state) { may_be_empty |= state.accepting; });
        if (may_be_empty) nullable[i] = changed = true;
        builder_.spend(rules_[i].num_states);
      }
    }
    return nullable;
  }

  /// A rule that calls itself before it takes a byte would be called for ever.
  void refuse_left_recursion() const {
    const std::vector<bool> nullable = nullable_rules();
    std::vector<std::vector<uint32_t>> called(rules_.size());
    for (size_t i = 0; i < rules_.size(); ++i) {
      visit_left(rules_[i], nullable, [&](const State& state) {
        for (const RuleAutomaton::Call& call : state.calls)
          called[i].push_back(call.rule);
      });
    }
    enum class Mark : uint8_t { unseen, open, done };
    std::vector<Mark> marks(rules_.size(), Mark::unseen);
    for (uint32_t root = 0; root < rules_.size(); ++root) {
      std::vector<std::pair<uint32_t, size_t>> path;  ///< rules, and which of their calls is next
      if (marks[root] == Mark::unseen) path.emplace_back(root, 0);
      while (!path.empty()) {
        const uint32_t rule = path.back().first;
        marks[rule] = Mark::open;
        if (path.back().second == called[rule].size()) {
          marks[rule] = Mark::done;
          path.pop_back();
          continue;
        }
        const uint32_t next = called[rule][path.back().second++];
        if (marks[next] == Mark::open)
          fail<GrammarError>("rule {} begins with itself (left recursion)", name_of(rules_[next]));
        if (marks[next] == Mark::unseen) path.emplace_back(next, 0);
      }
    }
  }

  /// Marks the states from which a rule's end can be reached.
  void find_productive() {
    std::vector<std::vector<uint32_t>> waiting(states_.size());  ///< states that look at this one
    for (uint32_t i = 0; i < states_.size(); ++i) {
      for (const RuleAutomaton::ByteEdge& edge : states_[i].edges)
        waiting[edge.target].push_back(i);
      for (const RuleAutomaton::Call& call : states_[i].calls) {
        waiting[call.target].push_back(i);
        waiting[start_of(call.rule)].push_back(i);
      }
    }
    productive_.assign(states_.size(), false);
    std::vector<uint32_t> todo;
    const auto look_at = [&](uint32_t index) {
      if (productive_[index] || !leads_on(states_[index])) return;
      productive_[index] = true;
      todo.push_back(index);
    };
    for (uint32_t i = 0; i < states_.size(); ++i)
      look_at(i);
    while (!todo.empty()) {
      const uint32_t index = todo.back();
      todo.pop_back();
      for (const uint32_t other : waiting[index])
        look_at(other);
    }
  }

  bool is_kept(const RuleAutomaton::Call& call) const {
    return productive_[call.target] && productive_[start_of(call.rule)];
  }
  bool leads_on(const State& state) const {
    return state.accepting ||
           std::ranges::any_of(state.edges,
                               [&](const auto& edge) { return bool{productive_[edge.target]}; }) ||
           std::ranges::any_of(state.calls, [&](const auto& call) { return is_kept(call); });
  }

  std::shared_ptr<const Grammar> laid_out() const {
    std::vector<uint32_t> place(states_.size());
    uint32_t num_kept = 0;
    for (size_t i = 0; i < states_.size(); ++i) {
      place[i] = num_kept;
      num_kept += productive_[i] ? 1 : 0;
    }
    auto grammar = std::make_shared<Grammar>();
    grammar->start_ = place[rules_.front().first_state];
    for (size_t i = 0; i < states_.size(); ++i) {
      if (!productive_[i]) continue;
      Grammar::State state{.first_edge = static_cast<uint32_t>(grammar->edges_.size()),
                           .first_call = static_cast<uint32_t>(grammar->calls_.size()),
                           .accepting = states_[i].accepting};
      for (const RuleAutomaton::ByteEdge& edge : states_[i].edges) {
        if (productive_[edge.target]) grammar->edges_.push_back({edge.low, edge.high, place[edge.target]});
      }
      for (const RuleAutomaton::Call& call : states_[i].calls) {
        if (is_kept(call)) grammar->calls_.push_back({place[start_of(call.rule)], place[call.target]});
      }
      state.num_edges = static_cast<uint32_t>(grammar->edges_.size()) - state.first_edge;
      state.num_calls = static_cast<uint32_t>(grammar->calls_.size()) - state.first_call;
      grammar->states_.push_back(state);
    }
    return grammar;
  }

  const GrammarBuilder& builder_;
  RuleNumbers numbers_;
  std::vector<Rule> rules_;
  std::unordered_map<GrammarBuilder::Rule, uint32_t> by_rule_;
  std::map<std::pair<GrammarBuilder::Expr, int64_t>, uint32_t> by_expr_;
  std::vector<State> states_;  ///< of all rules
  std::vector<bool> productive_;
};

size_t Grammar::bytes() const {
  return states_.capacity() * sizeof(State) + edges_.capacity() * sizeof(ByteEdge) +
         calls_.capacity() * sizeof(Call);
}

std::shared_ptr<const Grammar> compile_grammar(const GrammarBuilder& builder, GrammarBuilder::Expr root) {
  return GrammarCompiler(builder).compile(root);
}

}  // namespace minfer
