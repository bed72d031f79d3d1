#include "models/grammar/automaton/nfa.h"

#include <algorithm>
#include <array>

#include "kernels/base/error.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

/// The most states of a repetition within its automaton. Longer repetitions are made of calls; each call stands for kRepetitionsOfCall.
constexpr int64_t kMostStatesOfRepeat = 4096;
constexpr int64_t kRepetitionsOfCall = 256;

}  // namespace

Nfa::Nfa(const GrammarBuilder& builder, const RuleNumbers& numbers, bool may_call)
    : builder_(builder), numbers_(numbers), may_call_(may_call) {
  add({.kind = Kind::accept});
  add({.kind = Kind::dead});
}

uint32_t Nfa::add(const State& state) {
  builder_.spend(1);
  if (states_.size() >= 4 * builder_.limits().max_states ||
      targets_.size() >= 16 * builder_.limits().max_states)
    fail<GrammarError>("the grammar takes more than {} states", builder_.limits().max_states);
  states_.push_back(state);
  return static_cast<uint32_t>(states_.size() - 1);
}

uint32_t Nfa::add_split(std::span<const uint32_t> targets) {
  builder_.spend(targets.size());
  const auto first = static_cast<uint32_t>(targets_.size());
  targets_.insert(targets_.end(), targets.begin(), targets.end());
  return add({.kind = Kind::split, .first = first, .count = static_cast<uint32_t>(targets.size())});
}

/// Recursion as deep as the expression: GrammarLimits::max_depth.
uint32_t Nfa::build(Expr expr, uint32_t next) {
  const GrammarBuilder::Node& node = builder_.node(expr);
  switch (node.kind) {
    case GrammarBuilder::Kind::nothing:
      return kDead;
    case GrammarBuilder::Kind::empty:
      return next;
    case GrammarBuilder::Kind::bytes:
      return add({.kind = Kind::byte, .low = node.low, .high = node.high, .first = next});
    case GrammarBuilder::Kind::sequence: {
      const std::span<const Expr> parts = builder_.children(expr);
      for (size_t i = parts.size(); i > 0; --i)
        next = build(parts[i - 1], next);
      return next;
    }
    case GrammarBuilder::Kind::choice: {
      std::vector<uint32_t> targets;
      for (const Expr part : builder_.children(expr))
        targets.push_back(build(part, next));
      return add_split(targets);
    }
    case GrammarBuilder::Kind::repeat:
      return build_repeat(expr, next);
    case GrammarBuilder::Kind::both:
    case GrammarBuilder::Kind::minus:
      return embed(product_of(expr), next);
    case GrammarBuilder::Kind::reference:
      return add({.kind = Kind::call, .rule = numbers_.of_rule(node.rule), .first = next});
  }
  return kDead;
}

int64_t Nfa::size_of(Expr expr) {
  const auto known = sizes_.find(expr);
  if (known != sizes_.end()) return known->second;
  constexpr int64_t kMost = int64_t{1} << 40;
  const GrammarBuilder::Node& node = builder_.node(expr);
  int64_t size = 1;
  for (const Expr part : builder_.children(expr))
    size = std::min(kMost, size + size_of(part));
  if (node.kind == GrammarBuilder::Kind::repeat)
    size = std::min(kMost, size * std::max<int64_t>({1, node.min, node.max}));
  sizes_.emplace(expr, size);
  return size;
}

uint32_t Nfa::build_repeat(Expr expr, uint32_t next) {
  const GrammarBuilder::Node node = builder_.node(expr);
  const Expr child = builder_.children(expr).front();
  const bool is_short = size_of(expr) <= kMostStatesOfRepeat || std::max(node.min, node.max) <= 2;
  if (may_call_ && !is_short) return build_long_repeat(child, node.min, node.max, next);
  if (node.max < 0) {
    const auto first = static_cast<uint32_t>(targets_.size());
    targets_.insert(targets_.end(), {kDead, next});
    const uint32_t loop = add({.kind = Kind::split, .first = first, .count = 2});
    targets_[first] = build(child, loop);
    next = loop;
  }
  const uint32_t end = next;
  for (int64_t i = node.min; i < node.max; ++i) {
    const std::array<uint32_t, 2> targets = {build(child, next), end};
    next = add_split(targets);
  }
  for (int64_t i = 0; i < node.min; ++i)
    next = build(child, next);
  return next;
}

uint32_t Nfa::build_calls(uint32_t rule, int64_t count, uint32_t next) {
  for (int64_t i = 0; i < count; ++i)
    next = add({.kind = Kind::call, .rule = rule, .first = next});
  return next;
}

uint32_t Nfa::build_optional_calls(uint32_t rule, int64_t most, uint32_t next) {
  const uint32_t end = next;
  for (int64_t i = 0; i < most; ++i) {
    const std::array<uint32_t, 2> targets = {build_calls(rule, 1, next), end};
    next = add_split(targets);
  }
  return next;
}

/// Uses rules for one repetition and for many. The optional part beyond `min`, at most k = many x q + r repetitions, is either
/// fewer than q times many and any number below many, or q times many and at most r.
uint32_t Nfa::build_long_repeat(Expr child, int64_t min, int64_t max, uint32_t next) {
  const uint32_t one = numbers_.of_repeated(child, 1), many = numbers_.of_repeated(child, kRepetitionsOfCall);
  if (max < 0) {
    const auto first = static_cast<uint32_t>(targets_.size());
    targets_.insert(targets_.end(), {kDead, next});
    const uint32_t loop = add({.kind = Kind::split, .first = first, .count = 2});
    targets_[first] = build_calls(one, 1, loop);
    next = loop;
  } else {
    const int64_t q = (max - min) / kRepetitionsOfCall, r = (max - min) % kRepetitionsOfCall;
    const uint32_t full = build_calls(many, q, build_optional_calls(one, r, next));
    if (q > 0) {
      const uint32_t fewer =
          build_optional_calls(many, q - 1, build_optional_calls(one, kRepetitionsOfCall - 1, next));
      next = add_split(std::array{full, fewer});
    } else {
      next = full;
    }
  }
  next = build_calls(one, min % kRepetitionsOfCall, next);
  return build_calls(many, min / kRepetitionsOfCall, next);
}

const RuleAutomaton& Nfa::product_of(Expr expr) {
  const auto known = products_.find(expr);
  if (known != products_.end()) return known->second;
  const Expr a = builder_.children(expr)[0], b = builder_.children(expr)[1];
  const bool is_difference = builder_.node(expr).kind == GrammarBuilder::Kind::minus;
  return products_.emplace(expr, product(builder_, a, b, is_difference)).first->second;
}

/// A deterministic automaton as states of this one.
uint32_t Nfa::embed(const RuleAutomaton& automaton, uint32_t next) {
  std::vector<uint32_t> entries;
  for (size_t i = 0; i < automaton.states.size(); ++i)
    entries.push_back(add({.kind = Kind::split}));
  for (size_t i = 0; i < automaton.states.size(); ++i) {
    std::vector<uint32_t> targets;
    for (const RuleAutomaton::ByteEdge& edge : automaton.states[i].edges)
      targets.push_back(
          add({.kind = Kind::byte, .low = edge.low, .high = edge.high, .first = entries[edge.target]}));
    if (automaton.states[i].accepting) targets.push_back(next);
    State& entry = states_[entries[i]];
    entry.first = static_cast<uint32_t>(targets_.size());
    entry.count = static_cast<uint32_t>(targets.size());
    targets_.insert(targets_.end(), targets.begin(), targets.end());
  }
  return entries.front();
}

}  // namespace minfer
