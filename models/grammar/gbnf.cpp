#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/base/error.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/regex/code_points.h"
#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr int kMaxNesting = 200;  // of parentheses

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

/// Reads a grammar by recursive descent; rules are known by name from their first mention.
class GbnfReader {
 public:
  GbnfReader(GrammarBuilder& builder, std::string_view text) : builder_(builder), text_(text) {}

  Expr read() {
    skip_space(true);
    while (!at_end())
      take_rule();
    const auto root = rules_.find("root");
    if (root == rules_.end()) fail<GrammarError>("GBNF: no rule named \"root\"");
    for (const auto& [name, entry] : rules_) {
      if (!builder_.is_defined(entry.rule))
        fail<GrammarError>("GBNF, line {}: the rule \"{}\" is not defined", entry.line, name);
    }
    return builder_.reference(root->second.rule);
  }

 private:
  struct Entry {
    GrammarBuilder::Rule rule;
    int line;  ///< of its first mention
  };

  bool at_end() const { return position_ == text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[position_]; }
  [[noreturn]] void refuse(std::string_view what) const {
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(position_), '\n') + 1;
    fail<GrammarError>("GBNF, line {}: {}", line, what);
  }
  bool skip(std::string_view expected) {
    if (!text_.substr(position_).starts_with(expected)) return false;
    position_ += expected.size();
    return true;
  }

  /// White space and comments, over line ends or up to the next.
  void skip_space(bool over_lines) {
    for (; !at_end(); ++position_) {
      if (peek() == '#') position_ = std::min(text_.find('\n', position_), text_.size());
      if (at_end()) return;
      if (peek() == '\n') {
        if (!over_lines) return;
        ++line_;
      } else if (peek() != ' ' && peek() != '\t' && peek() != '\r') {
        return;
      }
    }
  }

  std::string take_name() {
    const size_t begin = position_;
    while (is_name_byte(peek()))
      ++position_;
    if (position_ == begin) refuse("the name of a rule expected");
    return std::string(text_.substr(begin, position_ - begin));
  }

  GrammarBuilder::Rule rule_named(const std::string& name) {
    const auto [found, is_new] = rules_.try_emplace(name, Entry{-1, line_});
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
    while (next_is_alternative(nesting > 0)) {
      skip("|");
      skip_space(true);
      choices.push_back(take_sequence(nesting));
    }
    return builder_.choice(choices);
  }

  /// A line that begins with | goes on with the rule before it.
  bool next_is_alternative(bool nested) {
    const size_t position = position_;
    const int line = line_;
    skip_space(true);
    if (peek() == '|') return true;
    if (!nested) {
      position_ = position;
      line_ = line;
    }
    return false;
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

  char32_t take_hex(int digits) {
    const std::string_view hex = text_.substr(position_, static_cast<size_t>(digits));
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (error != std::errc() || end != hex.data() + digits || value > kMaxCodePoint)
      refuse(fmt::format("a code point of {} hexadecimal digits expected", digits));
    position_ += hex.size();
    return value;
  }

  char32_t take_character() {
    if (skip("\\")) {
      const char c = peek();
      if (!at_end()) ++position_;
      switch (c) {
        case 'x':
          return take_hex(2);
        case 'u':
          return take_hex(4);
        case 'U':
          return take_hex(8);
        case 't':
          return '\t';
        case 'r':
          return '\r';
        case 'n':
          return '\n';
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
          return static_cast<unsigned char>(c);
        default:
          refuse("no such escape; \\x \\u \\U \\t \\r \\n \\\\ \\\" \\[ \\] \\- are known");
      }
    }
    if (at_end() || peek() == '\n') refuse("a literal or class is not closed on its line");
    const Utf8Unit unit = read_utf8(text_.substr(position_));
    if (unit.kind != Utf8Unit::Kind::character) refuse("not UTF-8");
    position_ += unit.length;
    return unit.character;
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
    return negated ? builder_.characters_but(merged_ranges(set)) : builder_.characters(merged_ranges(set));
  }

  int64_t take_number() {
    int64_t value = 0;
    const std::string_view rest = text_.substr(position_);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (error != std::errc() || value < 0) refuse("a count expected, of 0 or more");
    position_ += static_cast<size_t>(end - rest.data());
    return value;
  }

  /// * + ? {m} {m,} {,n} {m,n}: the smallest and the greatest count.
  std::optional<std::pair<int64_t, int64_t>> take_count() {
    if (skip("*")) return std::pair<int64_t, int64_t>{0, -1};
    if (skip("+")) return std::pair<int64_t, int64_t>{1, -1};
    if (skip("?")) return std::pair<int64_t, int64_t>{0, 1};
    if (!skip("{")) return std::nullopt;
    skip_space(true);
    const int64_t min = peek() == ',' ? 0 : take_number();
    int64_t max = min;
    skip_space(true);
    if (skip(",")) {
      skip_space(true);
      max = peek() == '}' ? -1 : take_number();
      skip_space(true);
    }
    if (!skip("}")) refuse("a count {m,n} is not closed: } expected");
    if (max >= 0 && max < min) refuse("a count {m,n} ends before it begins");
    return std::pair{min, max};
  }

  GrammarBuilder& builder_;
  std::string_view text_;
  size_t position_ = 0;
  int line_ = 1;
  std::unordered_map<std::string, Entry> rules_;
};

}  // namespace

GrammarBuilder::Expr add_gbnf(GrammarBuilder& builder, std::string_view text) {
  return GbnfReader(builder, text).read();
}

}  // namespace minfer
