#include "models/grammar/grammar_builder.h"

#include <algorithm>
#include <array>

#include <utf8proc.h>

#include "kernels/base/error.h"
#include "models/grammar/grammar_source.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ hash >> 29;
}

struct Utf8 {
  explicit Utf8(char32_t c)
      : size(static_cast<size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data()))) {}
  std::array<uint8_t, 4> bytes{};
  size_t size;
};

/// Appends the byte sequences of [first, last], divided so that each byte of a sequence has a range of its own (as in RE2).
void add_utf8(GrammarBuilder& builder, char32_t first, char32_t last, std::vector<Expr>& out) {
  constexpr std::array<char32_t, 3> kLastOfLength = {0x7f, 0x7ff, 0xffff};
  for (const char32_t end : kLastOfLength) {
    if (first <= end && last > end) {
      add_utf8(builder, first, end, out);
      return add_utf8(builder, end + 1, last, out);
    }
  }
  for (int shift = 6; last >= 0x80 && shift <= 18; shift += 6) {
    const char32_t mask = (char32_t{1} << shift) - 1;
    if ((first & ~mask) == (last & ~mask)) break;
    if ((first & mask) != 0) {
      add_utf8(builder, first, first | mask, out);
      return add_utf8(builder, (first | mask) + 1, last, out);
    }
    if ((last & mask) != mask) {
      add_utf8(builder, first, (last & ~mask) - 1, out);
      return add_utf8(builder, last & ~mask, last, out);
    }
  }
  const Utf8 low(first), high(last);
  std::vector<Expr> bytes;
  for (size_t i = 0; i < low.size; ++i)
    bytes.push_back(builder.byte(low.bytes[i], high.bytes[i]));
  out.push_back(builder.sequence(bytes));
}

constexpr int kMaxBranchings = 200;  // within each other; what is below them is not shared

/// The tree of the texts behind their first `begin` bytes. The texts are sorted, different, and equal up to there.
GrammarBuilder::Expr tree_of(GrammarBuilder& builder, std::span<const std::string> texts, size_t begin,
                             int branchings) {
  const auto rest = [&](const std::string& text) { return std::string_view(text).substr(begin); };
  std::vector<GrammarBuilder::Expr> choices;
  if (branchings == kMaxBranchings) {
    for (const std::string& text : texts)
      choices.push_back(builder.literal(rest(text)));
    return builder.choice(choices);
  }
  if (texts.front().size() == begin) {
    choices.push_back(builder.empty());
    texts = texts.subspan(1);
  }
  while (!texts.empty()) {
    const char next = texts.front()[begin];
    const auto size =
        std::ranges::find_if(texts, [&](const auto& text) { return text[begin] != next; }) - texts.begin();
    const std::string_view first = rest(texts.front());
    const std::string_view last = rest(texts[static_cast<size_t>(size) - 1]);
    const auto common = static_cast<size_t>(std::ranges::mismatch(first, last).in1 - first.begin());
    const GrammarBuilder::Expr tail =
        tree_of(builder, texts.first(static_cast<size_t>(size)), begin + common, branchings + 1);
    choices.push_back(builder.join(first.substr(0, common), tail));
    texts = texts.subspan(static_cast<size_t>(size));
  }
  return builder.choice(choices);
}

}  // namespace

GrammarBuilder::GrammarBuilder(const GrammarLimits& limits) : limits_(limits) {}

Expr GrammarBuilder::add(Node node, std::span<const Expr> parts) {
  uint64_t hash = mixed(static_cast<uint64_t>(node.kind), uint64_t{node.low} << 8 | node.high);
  hash = mixed(mixed(mixed(hash, static_cast<uint64_t>(node.rule)), static_cast<uint64_t>(node.min)),
               static_cast<uint64_t>(node.max));
  for (const Expr part : parts) {
    hash = mixed(hash, static_cast<uint64_t>(part));
    node.depth = std::max(node.depth, this->node(part).depth + 1);
    node.is_regular = node.is_regular && this->node(part).is_regular;
  }
  const auto [begin, end] = index_.equal_range(hash);
  for (auto known = begin; known != end; ++known) {
    const Node& other = this->node(known->second);
    if (other.kind == node.kind && other.low == node.low && other.high == node.high &&
        other.rule == node.rule && other.min == node.min && other.max == node.max &&
        std::ranges::equal(children(known->second), parts)) {
      return known->second;
    }
  }
  if (nodes_.size() >= limits_.max_expressions ||
      children_.size() + parts.size() > 16 * limits_.max_expressions)
    fail<GrammarError>("the grammar has more than {} expressions", limits_.max_expressions);
  if (node.depth > limits_.max_depth)
    fail<GrammarError>("expressions nested more than {} deep", limits_.max_depth);
  node.first_child = static_cast<int32_t>(children_.size());
  node.num_children = static_cast<int32_t>(parts.size());
  children_.insert(children_.end(), parts.begin(), parts.end());
  nodes_.push_back(node);
  const auto expr = static_cast<Expr>(nodes_.size() - 1);
  index_.emplace(hash, expr);
  return expr;
}

Expr GrammarBuilder::nothing() {
  return add({.kind = Kind::nothing});
}

Expr GrammarBuilder::empty() {
  return add({.kind = Kind::empty});
}

Expr GrammarBuilder::byte(uint8_t low, uint8_t high) {
  if (low > high) return nothing();
  return add({.kind = Kind::bytes, .low = low, .high = high});
}

Expr GrammarBuilder::literal(std::string_view bytes) {
  std::vector<Expr> parts;
  for (const char c : bytes)
    parts.push_back(byte(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
  return sequence(parts);
}

Expr GrammarBuilder::characters(std::span<const CodePointRange> ranges) {
  static const CodePoints no_surrogates{{0, 0xd7ff}, {0xe000, kMaxCodePoint}};
  std::vector<Expr> alternatives;
  for (const CodePointRange& range : intersection({ranges.begin(), ranges.end()}, no_surrogates))
    add_utf8(*this, range.first, range.last, alternatives);
  return choice(alternatives);
}

Expr GrammarBuilder::sequence(std::span<const Expr> parts) {
  std::vector<Expr> kept;
  for (const Expr part : parts) {
    if (node(part).kind == Kind::nothing) return part;
    if (node(part).kind != Kind::empty) kept.push_back(part);
  }
  if (kept.empty()) return empty();
  return kept.size() == 1 ? kept.front() : add({.kind = Kind::sequence}, kept);
}

Expr GrammarBuilder::choice(std::span<const Expr> parts) {
  std::vector<Expr> kept(parts.begin(), parts.end());
  std::erase_if(kept, [&](Expr part) { return node(part).kind == Kind::nothing; });
  std::ranges::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  if (kept.empty()) return nothing();
  return kept.size() == 1 ? kept.front() : add({.kind = Kind::choice}, kept);
}

Expr GrammarBuilder::repeat(Expr expr, int64_t min, int64_t max) {
  if (min < 0 || (max >= 0 && max < min)) return nothing();
  if (std::max(min, max) > limits_.max_repeat)
    fail<GrammarError>("{} repetitions, expected at most {}", std::max(min, max), limits_.max_repeat);
  const Kind kind = node(expr).kind;
  if (max == 0 || kind == Kind::empty) return empty();
  if (kind == Kind::nothing) return min == 0 ? empty() : expr;
  if (min == 1 && max == 1) return expr;
  return add({.kind = Kind::repeat, .min = min, .max = max}, {&expr, 1});
}

Expr GrammarBuilder::both(Expr a, Expr b) {
  if (a == b) return a;
  const std::array<Expr, 2> parts = {a, b};
  if (!node(a).is_regular || !node(b).is_regular)
    fail<GrammarError>("an intersection of expressions that refer to rules");
  return add({.kind = Kind::both}, parts);
}

Expr GrammarBuilder::minus(Expr a, Expr b) {
  if (node(b).kind == Kind::nothing) return a;
  const std::array<Expr, 2> parts = {a, b};
  if (!node(a).is_regular || !node(b).is_regular)
    fail<GrammarError>("a difference of expressions that refer to rules");
  return add({.kind = Kind::minus}, parts);
}

GrammarBuilder::Rule GrammarBuilder::add_rule(std::string name) {
  if (rules_.size() >= limits_.max_expressions)
    fail<GrammarError>("the grammar has more than {} rules", limits_.max_expressions);
  rules_.push_back({std::move(name)});
  return static_cast<Rule>(rules_.size() - 1);
}

void GrammarBuilder::define(Rule rule, Expr expr) {
  rules_[static_cast<size_t>(rule)].expr = expr;
}

Expr GrammarBuilder::reference(Rule rule) {
  return add({.kind = Kind::reference, .is_regular = false, .rule = rule});
}

void GrammarBuilder::spend(size_t work) const {
  work_ += work;
  if (work_ > limits_.max_work) fail<GrammarError>("the grammar takes too long to compile");
}

GrammarBuilder::Expr one_of(GrammarBuilder& builder, std::vector<std::string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  return texts.empty() ? builder.nothing() : tree_of(builder, texts, 0, 0);
}

GrammarBuilder::Expr add_choices(GrammarBuilder& builder, const std::vector<std::string>& choices) {
  if (choices.empty()) fail<GrammarError>("choices: at least one expected, found none");
  return one_of(builder, choices);
}

}  // namespace minfer
