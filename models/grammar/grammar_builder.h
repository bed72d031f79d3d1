#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kernels/base/error_types.h"

namespace minfer {

/// A grammar that cannot be honoured; the message tells its client why.
class GrammarError : public Error {
 public:
  using Error::Error;
};

/// The limits on the cost of compiling and keeping one grammar.
struct GrammarLimits {
  size_t max_expressions = 500'000;
  size_t max_states = 200'000;    ///< of all automata, also while they are being made
  size_t max_work = 200'000'000;  ///< steps of compiling; this many take a second or two
  int32_t max_depth = 1'000;      ///< of nested expressions, without references
  int64_t max_repeat = 1'000'000;
};

struct CodePointRange {
  char32_t first;
  char32_t last;  ///< inclusive
};

/// Builds the expressions of a grammar. JSON schemas, regular expressions and GBNF are all read into these; compile_grammar() turns
/// them into automata. Equal expressions have the same id. One thread. Throws GrammarError beyond the limits.
///
/// Texts are bytes: the UTF-8 of a model's output. A control token of the vocabulary is kControlByte and its text (see TokenTrie).
class GrammarBuilder {
 public:
  using Expr = int32_t;
  using Rule = int32_t;

  enum class Kind : uint8_t { nothing, empty, bytes, sequence, choice, repeat, both, minus, reference };

  /// A node. children() has its parts; a node of kind `bytes` holds its range itself (one byte of [low, high]).
  struct Node {
    Kind kind = Kind::nothing;
    uint8_t low = 0;
    uint8_t high = 0;
    bool is_regular = true;  ///< contains no reference
    Rule rule = -1;          ///< of a reference
    int64_t min = 0;         ///< of repeat
    int64_t max = -1;        ///< of repeat; -1: unbounded
    int32_t first_child = 0;
    int32_t num_children = 0;
    int32_t depth = 1;
  };

  explicit GrammarBuilder(const GrammarLimits& limits = {});

  Expr nothing();  ///< no text at all, not even an empty one
  Expr empty();    ///< the empty text
  Expr byte(uint8_t low, uint8_t high);
  Expr literal(std::string_view bytes);
  /// One code point of any of these ranges, as UTF-8. Surrogates are left out.
  Expr characters(std::span<const CodePointRange> ranges);
  Expr characters(std::initializer_list<CodePointRange> ranges) {
    return characters(std::span(ranges.begin(), ranges.size()));
  }
  Expr sequence(std::span<const Expr> parts);
  Expr sequence(std::initializer_list<Expr> parts) {
    return sequence(std::span(parts.begin(), parts.size()));
  }
  /// The same; texts among the parts are literals.
  template <class... Parts>
  Expr join(const Parts&... parts) {
    return sequence({as_expr(parts)...});
  }
  Expr choice(std::span<const Expr> parts);
  Expr choice(std::initializer_list<Expr> parts) { return choice(std::span(parts.begin(), parts.size())); }
  /// `min` to `max` times; -1: without bound. Large counts use intermediate rules, so they cost little.
  Expr repeat(Expr expr, int64_t min, int64_t max);
  Expr optional(Expr expr) { return repeat(expr, 0, 1); }
  Expr any_number(Expr expr) { return repeat(expr, 0, -1); }
  /// The texts of both; the texts of `a` that are not texts of `b`. Only for expressions without references.
  Expr both(Expr a, Expr b);
  Expr minus(Expr a, Expr b);

  /// Adds a rule. A rule may be referred to before it is defined: for recursion, and for parts that many places share. The name is
  /// for messages.
  Rule add_rule(std::string name);
  void define(Rule rule, Expr expr);
  bool is_defined(Rule rule) const { return rules_[static_cast<size_t>(rule)].expr >= 0; }
  Expr reference(Rule rule);

  const Node& node(Expr expr) const { return nodes_[static_cast<size_t>(expr)]; }
  std::span<const Expr> children(Expr expr) const {
    const Node& n = node(expr);
    return std::span(children_).subspan(static_cast<size_t>(n.first_child),
                                        static_cast<size_t>(n.num_children));
  }
  size_t num_rules() const { return rules_.size(); }
  const std::string& rule_name(Rule rule) const { return rules_[static_cast<size_t>(rule)].name; }
  Expr rule_expr(Rule rule) const { return rules_[static_cast<size_t>(rule)].expr; }
  const GrammarLimits& limits() const { return limits_; }
  /// Adds to the work of compiling. Throws GrammarError beyond the limit.
  void spend(size_t work) const;

 private:
  struct RuleEntry {
    std::string name;
    Expr expr = -1;
  };

  Expr add(Node node, std::span<const Expr> children = {});
  static Expr as_expr(Expr expr) { return expr; }
  Expr as_expr(std::string_view text) { return literal(text); }

  GrammarLimits limits_;
  mutable size_t work_ = 0;
  std::vector<Node> nodes_;
  std::vector<Expr> children_;
  std::vector<RuleEntry> rules_;
  std::unordered_multimap<uint64_t, Expr> index_;  ///< by hash of their content
};

/// One of these texts, as a tree of their common prefixes, so that many texts cost little more than their number.
GrammarBuilder::Expr one_of(GrammarBuilder& builder, std::vector<std::string> texts);

}  // namespace minfer
