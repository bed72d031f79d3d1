#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/base/error.h"
#include "models/grammar/code_points.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/text_reader.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kMaxNesting = 200;  // of parentheses

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/// Reads a grammar by recursive descent; rules are known by name from their first mention.
class GbnfReader : private TextReader {
 public:
  GbnfReader(GrammarBuilder& builder, std::string_view text) : TextReader("GBNF", text), builder_(builder) {}

  Expr read() {
    skip_space(true);
    while (!at_end())
      take_rule();
    const auto root = rules_.find("root");
    if (root == rules_.end()) fail<GrammarError>("GBNF: no rule named \"root\"");
    for (const auto& [name, entry] : rules_) {
      if (!builder_.is_defined(entry.rule))
        fail<GrammarError>("GBNF, line {}: the rule \"{}\" is not defined", line_at(entry.mentioned_at),
                           name);
    }
    return builder_.reference(root->second.rule);
  }

 private:
  struct Entry {
    GrammarBuilder::Rule rule;
    size_t mentioned_at;  ///< first
  };

  std::string take_name() {
    const std::string_view name = take_while(is_name_byte);
    if (name.empty()) refuse("the name of a rule expected");
    return std::string(name);
  }

  GrammarBuilder::Rule rule_named(const std::string& name) {
    const auto [found, is_new] = rules_.try_emplace(name, Entry{-1, position_});
    if (is_new) found->second.rule = builder_.add_rule(name);
    return found->second.rule;
  }

  void take_rule() {
    const std::string name = take_name();
    skip_space(false);
    if (!skip("::=")) refuse(fmt::format("::= expected behind \"{}\"", name));
    skip_space(true);
    const GrammarBuilder::Rule rule = rule_named(name);
    if (builder_.is_defined(rule)) refuse(fmt::format("the rule \"{}\" is defined twice", name));
    builder_.define(rule, take_alternatives(0));
    if (!at_end() && peek() != '\n') refuse("the end of the line, or a part of a rule, expected");
    skip_space(true);
  }

  Expr take_alternatives(int nesting) {
    if (nesting > kMaxNesting) refuse(fmt::format("more than {} parentheses within each other", kMaxNesting));
    std::vector<Expr> choices{take_sequence(nesting)};
    // A line that begins with | goes on with the rule before it.
    while (skip_to_alternative(nesting > 0)) {
      skip_space(true);
      choices.push_back(take_sequence(nesting));
    }
    return builder_.choice(choices);
  }

  Expr take_sequence(int nesting) {
    std::vector<Expr> parts;
    while (const auto part = take_part(nesting)) {
      parts.push_back(*part);
      skip_space(nesting > 0);
      while (const auto count = take_count()) {
        parts.back() = builder_.repeat(parts.back(), count->first, count->second);
        skip_space(nesting > 0);
      }
    }
    return builder_.sequence(parts);
  }

  /// Empty where a sequence ends.
  std::optional<Expr> take_part(int nesting) {
    if (skip("\"")) return take_literal();
    if (skip("[")) return take_class();
    if (skip(".")) return builder_.characters({{0, kMaxCodePoint}});
    if (skip("(")) {
      skip_space(true);
      const Expr group = take_alternatives(nesting + 1);
      if (!skip(")")) refuse("a group is not closed: ) expected");
      return group;
    }
    if (is_name_byte(peek())) return builder_.reference(rule_named(take_name()));
    if (peek() == '<' || peek() == '!') refuse("tokens (<...>) are not supported: write their text");
    return std::nullopt;
  }

  char32_t take_character() {
    if (skip("\\")) return take_escape();
    if (at_end() || peek() == '\n') refuse("a literal or class is not closed on its line");
    return take_code_point();
  }

  char32_t take_escape() {
    constexpr std::string_view kLetters = "trn\\\"[]-";
    constexpr std::string_view kMeanings = "\t\r\n\\\"[]-";
    const char c = peek();
    if (!at_end()) ++position_;
    if (const size_t i = kLetters.find(c); i != std::string_view::npos)
      return static_cast<unsigned char>(kMeanings[i]);
    const int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) refuse("no such escape; \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\- are known");
    const auto code_point = take_hex(digits);
    if (!code_point || *code_point > kMaxCodePoint)
      refuse(fmt::format("a code point of {} hexadecimal digits expected", digits));
    return *code_point;
  }

  Expr take_literal() {
    std::vector<Expr> characters;
    while (!skip("\"")) {
      const char32_t c = take_character();
      characters.push_back(builder_.characters({{c, c}}));
    }
    return builder_.sequence(characters);
  }

  Expr take_class() {
    const bool negated = skip("^");
    CodePoints set;
    while (!skip("]")) {
      CodePointRange range{take_character(), 0};
      range.last = range.first;
      if (peek() == '-' && !text_.substr(position_).starts_with("-]")) {
        ++position_;
        range.last = take_character();
        if (range.last < range.first) refuse("a range of a class ends before it begins");
      }
      set.push_back(range);
    }
    return builder_.characters(negated ? complement(set) : set);
  }

  int64_t take_repetitions() {
    const auto count = take_number();
    if (!count) refuse("a count expected, of 0 or more");
    return *count;
  }

  /// * + ? {m} {m,} {,n} {m,n}: the smallest and the greatest count.
  std::optional<std::pair<int64_t, int64_t>> take_count() {
    if (skip("*")) return std::pair<int64_t, int64_t>{0, -1};
    if (skip("+")) return std::pair<int64_t, int64_t>{1, -1};
    if (skip("?")) return std::pair<int64_t, int64_t>{0, 1};
    if (!skip("{")) return std::nullopt;
    skip_space(true);
    const int64_t min = peek() == ',' ? 0 : take_repetitions();
    int64_t max = min;
    skip_space(true);
    if (skip(",")) {
      skip_space(true);
      max = peek() == '}' ? -1 : take_repetitions();
      skip_space(true);
    }
    if (!skip("}")) refuse("a count {m,n} is not closed: } expected");
    if (max >= 0 && max < min) refuse("a count {m,n} ends before it begins");
    return std::pair{min, max};
  }

  GrammarBuilder& builder_;
  std::unordered_map<std::string, Entry> rules_;
};

}  // namespace

GrammarBuilder::Expr add_gbnf(GrammarBuilder& builder, std::string_view text) {
  return GbnfReader(builder, text).read();
}

}  // namespace minfer
