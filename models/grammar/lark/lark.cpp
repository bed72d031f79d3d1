#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/base/error.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/lark/lark_text.h"
#include "models/grammar/regex/regex.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kMaxLarkNesting = 200;  // of parentheses, and of terminals in terminals

/// True if the name is a terminal's, by its letters.
bool is_terminal_name(std::string_view name) {
  const size_t first = name.find_first_not_of('_');
  return first != std::string_view::npos && name[first] >= 'A' && name[first] <= 'Z';
}

/// Finds the definitions first, then reads their bodies by recursive descent: terminals, which are regular, where they are used.
class LarkReader : private LarkText {
 public:
  LarkReader(GrammarBuilder& builder, std::string_view text, Spelling spelling)
      : LarkText(text), builder_(builder), spelling_(spelling) {}

  Expr read() {
    find_definitions();
    if (!definitions_.contains("start")) fail<GrammarError>("Lark: no rule named \"start\"");
    std::vector<Expr> ignored_texts;
    for (const Directive& ignored : ignored_) {
      enter(ignored.begin, ignored.end);
      ignored_texts.push_back(take_alternatives(0, true));
      expect_end();
    }
    gap_ = builder_.any_number(builder_.choice(ignored_texts));
    for (const auto& name : names_) {
      const Definition& definition = definitions_.at(name);
      if (is_terminal_name(name)) {
        terminal(name);
      } else {
        enter(definition.begin, definition.end);
        builder_.define(rule_named(name), take_rule(name));
        expect_end();
      }
    }
    return builder_.sequence({builder_.reference(rule_named("start")), gap_});
  }

 private:
  struct Definition {
    size_t begin, end;              ///< of the body
    std::string_view imported;      ///< a regular expression, for one of the common terminals
    std::optional<Expr> expr = {};  ///< of a terminal that has been read
    bool is_open = false;           ///< it is being read
  };
  struct Directive {
    size_t begin, end;
  };

  void expect_end() {
    skip_space(true);
    if (!at_end()) refuse_found("a part of a rule, | or the next definition");
  }

  /// By their first lines: NAME and a colon, or a directive. Each reaches to the next.
  void find_definitions() {
    std::vector<std::pair<size_t, std::string>> bodies;  // and names; "%ignore"
    std::vector<size_t> starts;
    skip_space(true);
    while (!at_end()) {
      const size_t start = position_;
      if (peek() == '%') {
        starts.push_back(start);
        bodies.emplace_back(0, take_directive());
        bodies.back().first = position_;
      } else if (skip("|")) {
        if (starts.empty()) refuse("a rule expected, found |");
      } else if (const auto name = take_head()) {
        starts.push_back(start);
        bodies.emplace_back(position_, *name);
      } else if (starts.empty()) {
        refuse_found("a rule (name: ...)");
      }
      position_ = std::min(text_.find('\n', position_), end_);
      skip_space(true);
    }
    for (size_t i = 0; i < bodies.size(); ++i) {
      const auto& [begin, name] = bodies[i];
      const size_t end = i + 1 < starts.size() ? starts[i + 1] : text_.size();
      if (name == "%ignore") {
        ignored_.push_back({begin, end});
      } else if (!name.empty()) {
        define(name, {.begin = begin, .end = end, .imported = {}});
      }
    }
  }

  void define(const std::string& name, const Definition& definition) {
    if (!definitions_.emplace(name, definition).second) refuse(fmt::format("{} is defined twice", name));
    names_.push_back(name);
  }

  /// The name that a definition begins with; empty: this line begins none.
  std::optional<std::string> take_head() {
    while (skip("?") || skip("!")) {
    }
    if (!is_name_byte(peek())) return std::nullopt;
    std::string name = take_name();
    if (skip("{")) refuse(fmt::format("{}: templates are not supported", name));
    if (peek() == '.' && position_ + 1 < end_ && text_[position_ + 1] >= '0' && text_[position_ + 1] <= '9')
      refuse(fmt::format("{}: priorities are not supported", name));
    skip_space(false);
    if (peek() == '[') refuse(fmt::format("{}: attributes are not supported", name));
    if (!skip(":")) return std::nullopt;
    return name;
  }

  /// "%ignore", whose body follows; else empty.
  std::string take_directive() {
    if (skip("%ignore")) return "%ignore";
    if (!skip("%import")) refuse_found("%import or %ignore (no other directive is supported)");
    skip_space(false);
    if (!skip("common")) refuse_found("common (terminals can be imported from nowhere else)");
    if (skip(".")) {
      const std::string name = take_name();
      skip_space(false);
      std::string alias = name;
      if (skip("->")) {
        skip_space(false);
        alias = take_name();
      }
      import(name, alias);
    } else {
      skip_space(false);
      if (!skip("(")) refuse_found(". and a name, or names in parentheses,");
      do {
        skip_space(false);
        const std::string name = take_name();
        import(name, name);
        skip_space(false);
      } while (skip(","));
      if (!skip(")")) refuse_found(")");
    }
    skip_space(false);
    if (!at_end() && peek() != '\n') refuse_found("the end of the line");
    return {};
  }

  void import(const std::string& name, const std::string& alias) {
    const std::string_view pattern = common_terminal(name);
    if (pattern.empty()) refuse(fmt::format("%import: common has no {} that is known", name));
    if (!is_terminal_name(alias)) refuse(fmt::format("%import: {} is no name of a terminal", alias));
    define(alias, {.begin = 0, .end = 0, .imported = pattern});
  }

  GrammarBuilder::Rule rule_named(const std::string& name) {
    const auto [known, is_new] = rules_.try_emplace(name, -1);
    if (is_new) known->second = builder_.add_rule(name);
    return known->second;
  }

  Expr terminal(const std::string& name) {
    const auto known = definitions_.find(name);
    if (known == definitions_.end()) refuse(fmt::format("the terminal {} is not defined", name));
    Definition& definition = known->second;
    if (definition.expr) return *definition.expr;
    if (definition.is_open) refuse(fmt::format("the terminal {} refers to itself", name));
    if (++nesting_of_terminals_ > kMaxLarkNesting)
      refuse(fmt::format("more than {} terminals within each other", kMaxLarkNesting));
    definition.is_open = true;
    if (!definition.imported.empty()) {
      definition.expr = regex_texts(builder_, definition.imported, RegexScope::whole, spelling_);
    } else {
      const size_t position = position_, end = end_;
      enter(definition.begin, definition.end);
      definition.expr = take_alternatives(0, true);
      expect_end();
      enter(position, end);
    }
    --nesting_of_terminals_;
    return *definition.expr;
  }

  /// Alternatives that begin with the rule itself follow one another behind those that do not: a: a "x" | "y" is "y" "x"*.
  Expr take_rule(const std::string& name) {
    std::vector<Expr> first, later;
    do {
      skip_space(true);
      const size_t position = position_;
      const bool is_left = is_name_byte(peek()) && take_name() == name && !begins_count();
      if (!is_left) position_ = position;
      (is_left ? later : first).push_back(take_sequence(0, false));
    } while (skip_to_alternative(false));
    return builder_.sequence({builder_.choice(first), builder_.any_number(builder_.choice(later))});
  }

  bool begins_count() const {
    return peek() != '\0' && std::string_view("*+?~{").find(peek()) != std::string_view::npos;
  }

  Expr take_alternatives(int nesting, bool in_terminal) {
    if (nesting > kMaxLarkNesting)
      refuse(fmt::format("more than {} parentheses within each other", kMaxLarkNesting));
    std::vector<Expr> choices;
    do {
      skip_space(true);
      choices.push_back(take_sequence(nesting, in_terminal));
    } while (skip_to_alternative(nesting > 0));
    return builder_.choice(choices);
  }

  Expr take_sequence(int nesting, bool in_terminal) {
    std::vector<Expr> parts;
    skip_space(nesting > 0);
    while (const auto part = take_part(nesting, in_terminal)) {
      parts.push_back(take_counts(*part));
      skip_space(nesting > 0);
    }
    if (skip("->")) {  // the name of a node of the tree
      skip_space(false);
      take_name();
    }
    return builder_.sequence(parts);
  }

  /// Empty where a sequence ends.
  std::optional<Expr> take_part(int nesting, bool in_terminal) {
    if (skip("(")) return take_group(nesting, in_terminal, ")");
    if (skip("[")) return builder_.optional(take_group(nesting, in_terminal, "]"));
    if (is_name_byte(peek())) {
      const std::string name = take_name();
      if (is_terminal_name(name)) return lexed(terminal(name), in_terminal);
      if (in_terminal)
        refuse(fmt::format("a terminal refers to the rule {}, expected terminals alone", name));
      if (!definitions_.contains(name)) refuse(fmt::format("the rule {} is not defined", name));
      return builder_.reference(rule_named(name));
    }
    if (peek() == '"') return lexed(take_string(), in_terminal);
    if (peek() == '/') return lexed(take_regex(), in_terminal);
    if (peek() == '<') refuse("tokens (<...>) are not supported: write their text");
    if (peek() == '%') refuse("a grammar within a rule (%...) is not supported");
    return std::nullopt;
  }

  Expr take_group(int nesting, bool in_terminal, std::string_view close) {
    const Expr group = take_alternatives(nesting + 1, in_terminal);
    if (!skip(close)) refuse_found(close);
    return group;
  }

  Expr lexed(Expr expr, bool in_terminal) { return in_terminal ? expr : builder_.sequence({gap_, expr}); }

  /// * + ? ~n ~n..m {n} {n,} {,m} {n,m}
  Expr take_counts(Expr expr) {
    for (;;) {
      if (skip("*")) {
        expr = builder_.any_number(expr);
      } else if (skip("+")) {
        expr = builder_.repeat(expr, 1, -1);
      } else if (skip("?")) {
        expr = builder_.optional(expr);
      } else if (peek() == '~' || peek() == '{') {
        expr = take_range(expr);
      } else {
        return expr;
      }
    }
  }

  Expr take_range(Expr expr) {
    const bool is_tilde = skip("~");
    if (!is_tilde) skip("{");
    skip_space(false);
    const int64_t min = peek() == ',' ? 0 : take_repetitions();
    int64_t max = min;
    if (!is_tilde) skip_space(false);
    if (skip(is_tilde ? ".." : ",")) {
      skip_space(false);
      max = peek() == '}' ? -1 : take_repetitions();
    }
    if (!is_tilde) skip_space(false);
    if (!is_tilde && !skip("}")) refuse_found("}");
    if (max >= 0 && max < min)
      refuse(fmt::format("{} to {} repetitions, expected a maximum no less than the minimum", min, max));
    return builder_.repeat(expr, min, max);
  }

  Expr one_of_set(const CodePoints& set) { return spelled(builder_, spelling_, set); }

  /// "text", "text"i, or the range "a".."z".
  Expr take_string() {
    const std::vector<char32_t> text = take_characters();
    if (skip("..")) {
      if (peek() != '"') refuse_found("a string");
      const std::vector<char32_t> last = take_characters();
      if (text.size() != 1 || last.size() != 1 || last[0] < text[0])
        refuse("a range of two characters expected, the first no greater than the last");
      return one_of_set({{text[0], last[0]}});
    }
    const bool ignores_case = peek() == 'i' && (position_ + 1 >= end_ || !is_name_byte(text_[position_ + 1]));
    if (ignores_case) ++position_;
    std::vector<Expr> parts;
    for (const char32_t c : text) {
      CodePoints set{{c, c}};
      if (ignores_case && c > 0x7f) refuse("\"...\"i is only supported for ASCII");
      parts.push_back(one_of_set(ignores_case ? with_both_cases(std::move(set)) : set));
    }
    return builder_.sequence(parts);
  }

  /// /pattern/flags
  Expr take_regex() {
    skip("/");
    const size_t begin = position_;
    while (peek() != '/') {
      if (at_end() || peek() == '\n') refuse_found("/ at the end of a regular expression");
      position_ += peek() == '\\' && position_ + 1 < end_ ? 2 : 1;
    }
    const std::string_view pattern = text_.substr(begin, position_ - begin);
    ++position_;
    RegexFlags flags;
    for (; !at_end() && is_name_byte(peek()); ++position_) {
      if (peek() == 'i') {
        flags.ignores_case = true;
      } else if (peek() == 's') {
        flags.dot_is_any = true;
      } else if (peek() != 'u') {  // characters are code points either way
        refuse_found("one of the flags i, s and u");
      }
    }
    try {
      return regex_texts(builder_, pattern, RegexScope::whole, spelling_, flags);
    } catch (const GrammarError& error) {
      refuse(error.what());
    }
  }

  GrammarBuilder& builder_;
  Spelling spelling_;
  std::unordered_map<std::string, Definition> definitions_;
  std::vector<std::string> names_;  ///< of definitions, in order
  std::vector<Directive> ignored_;
  Expr gap_ = -1;  ///< what may be ignored, in front of a terminal and at the end
  std::unordered_map<std::string, GrammarBuilder::Rule> rules_;
  int nesting_of_terminals_ = 0;
};

}  // namespace

GrammarBuilder::Expr add_lark(GrammarBuilder& builder, std::string_view text, Spelling spelling) {
  return LarkReader(builder, text, spelling).read();
}

}  // namespace minfer
