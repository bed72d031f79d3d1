// Grammars against their texts, which a slow reference lists.
#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "models/grammar/grammar.h"
#include "models/grammar/token_grammar.h"
#include "models/tokenizer/tokenizer.h"
#include "tests/support/refusal.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;
using Language = std::set<std::string>;

constexpr size_t kLongest = 5;
constexpr std::string_view kLetters = "abc";

std::shared_ptr<const TokenTrie> byte_vocabulary() {
  static const auto trie = std::make_shared<const TokenTrie>(*make_byte_tokenizer(260), 260);
  return trie;
}

GrammarMatcher matcher_of(const GrammarBuilder& builder, Expr root) {
  return GrammarMatcher(std::make_shared<TokenGrammar>(compile_grammar(builder, root), byte_vocabulary()));
}

/// In parts, like tokens, because one call may take a limited number of bytes.
bool accepts(GrammarMatcher& matcher, std::string_view text) {
  constexpr size_t kPart = 1000;
  for (; !text.empty(); text.remove_prefix(std::min(kPart, text.size()))) {
    if (!matcher.accept_bytes(text.substr(0, kPart))) return false;
  }
  return true;
}

bool takes(const GrammarMatcher& start, std::string_view text) {
  GrammarMatcher matcher = start;
  return accepts(matcher, text) && matcher.may_end();
}

/// All texts of at most kLongest letters that an expression allows, by its definition; those of rules are given.
Language language_of(const GrammarBuilder& builder, Expr expr, const std::vector<Language>& rules) {
  using NodeKind = GrammarBuilder::Kind;
  const GrammarBuilder::Node& node = builder.node(expr);
  std::vector<Language> parts;
  for (const Expr child : builder.children(expr))
    parts.push_back(language_of(builder, child, rules));
  const auto joined = [](const Language& a, const Language& b) {
    Language all;
    for (const std::string& x : a) {
      for (const std::string& y : b) {
        if (x.size() + y.size() <= kLongest) all.insert(x + y);
      }
    }
    return all;
  };
  Language language;
  switch (node.kind) {
    case NodeKind::nothing:
      return {};
    case NodeKind::empty:
      return {""};
    case NodeKind::bytes:
      for (const char letter : kLetters) {
        if (letter >= static_cast<char>(node.low) && letter <= static_cast<char>(node.high))
          language.insert({letter});
      }
      return language;
    case NodeKind::sequence:
      language = {""};
      for (const Language& part : parts)
        language = joined(language, part);
      return language;
    case NodeKind::choice:
      for (const Language& part : parts)
        language.insert(part.begin(), part.end());
      return language;
    case NodeKind::repeat: {
      Language power = {""};
      const int64_t most = node.max < 0 ? node.min + static_cast<int64_t>(kLongest) : node.max;
      for (int64_t i = 0; i <= most; ++i) {
        if (i >= node.min) language.insert(power.begin(), power.end());
        power = joined(power, parts.front());
      }
      return language;
    }
    case NodeKind::both:
      for (const std::string& text : parts[0]) {
        if (parts[1].contains(text)) language.insert(text);
      }
      return language;
    case NodeKind::minus:
      for (const std::string& text : parts[0]) {
        if (!parts[1].contains(text)) language.insert(text);
      }
      return language;
    case NodeKind::reference:
      return rules[static_cast<size_t>(node.rule)];
  }
  return language;
}

std::vector<Language> languages_of_rules(const GrammarBuilder& builder) {
  std::vector<Language> rules(builder.num_rules());
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < rules.size(); ++i) {
      Language found = language_of(builder, builder.rule_expr(static_cast<GrammarBuilder::Rule>(i)), rules);
      changed |= found != rules[i];
      rules[i] = std::move(found);
    }
  }
  return rules;
}

class RandomExpression {
 public:
  RandomExpression(GrammarBuilder& builder, std::mt19937& random, int num_rules)
      : builder_(builder), random_(random), num_rules_(num_rules) {}

  Expr make(int depth, bool regular) {
    const int kind = depth == 0 ? below(3) : below(9);
    switch (kind) {
      case 0:
        return builder_.byte('a', static_cast<uint8_t>('a' + below(3)));
      case 1:
        return builder_.literal(
            std::string(kLetters.substr(static_cast<size_t>(below(3)), 1 + static_cast<size_t>(below(2)))));
      case 2:
        return below(4) == 0 ? builder_.empty() : builder_.byte('b', 'b');
      case 3:
      case 4:
        return builder_.sequence({make(depth - 1, regular), make(depth - 1, regular)});
      case 5:
        return builder_.choice(
            {make(depth - 1, regular), make(depth - 1, regular), make(depth - 1, regular)});
      case 6: {
        const int min = below(3);
        return builder_.repeat(make(depth - 1, regular), min, below(2) == 0 ? -1 : min + below(3));
      }
      case 7:
        if (regular || num_rules_ == 0) {
          return below(2) == 0 ? builder_.both(make(depth - 1, true), make(depth - 1, true))
                               : builder_.minus(make(depth - 1, true), make(depth - 1, true));
        }
        [[fallthrough]];
      default:
        if (regular || num_rules_ == 0) return make(depth - 1, regular);
        // Behind a letter, so that no rule begins with itself.
        return builder_.sequence({builder_.byte('a', 'c'), builder_.reference(below(num_rules_))});
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }

  GrammarBuilder& builder_;
  std::mt19937& random_;
  int num_rules_;
};

void add_all_texts(std::string text, std::vector<std::string>& out) {
  out.push_back(text);
  if (text.size() == kLongest) return;
  for (const char letter : kLetters)
    add_all_texts(text + letter, out);
}

TEST(GrammarLanguage, IsThatOfTheReference) {
  std::mt19937 random(7);
  std::vector<std::string> texts;
  add_all_texts("", texts);
  int num_with_text = 0;
  for (int round = 0; round < 400; ++round) {
    GrammarBuilder builder;
    const int num_rules = round % 3;
    for (int i = 0; i < num_rules; ++i)
      builder.add_rule("rule");
    RandomExpression expression(builder, random, num_rules);
    for (int i = 0; i < num_rules; ++i)
      builder.define(i, expression.make(3, false));
    const Expr root = expression.make(4, false);
    const Language language = language_of(builder, root, languages_of_rules(builder));
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = compile_grammar(builder, root);
    } catch (const GrammarError& error) {
      EXPECT_TRUE(language.empty()) << error.what();
      continue;
    }
    ++num_with_text;
    const GrammarMatcher start(std::make_shared<TokenGrammar>(grammar, byte_vocabulary()));
    for (const std::string& text : texts) {
      ASSERT_EQ(takes(start, text), language.contains(text)) << "round " << round << ": \"" << text << '"';
      GrammarMatcher prefix = start;
      if (language.contains(text)) {
        ASSERT_TRUE(prefix.accept_bytes(std::string_view(text).substr(0, text.size() / 2)));
      }
    }
  }
  EXPECT_GT(num_with_text, 300);
}

TEST(GrammarLanguage, LongRepetitionsAreCounted) {
  for (const auto& [min, max] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 5000}, {3000, 3000}, {300, 70'001}, {255, 512}, {9000, -1}, {1, 1'000'000}}) {
    GrammarBuilder builder;
    const Expr pair =
        builder.sequence({builder.byte('a', 'b'), builder.byte('x', 'y'), builder.byte('0', '9')});
    const GrammarMatcher start = matcher_of(builder, builder.repeat(pair, min, max));
    const auto repeated = [](int64_t count) {
      std::string text;
      for (int64_t i = 0; i < count; ++i)
        text += "ax7";
      return text;
    };
    EXPECT_TRUE(takes(start, repeated(min))) << min;
    EXPECT_EQ(takes(start, repeated(min + 257)), max < 0 || min + 257 <= max) << min;
    EXPECT_FALSE(min > 0 && takes(start, repeated(min - 1))) << min;
    if (max >= 0 && max < 100'000) {
      EXPECT_TRUE(takes(start, repeated(max))) << max;
      GrammarMatcher behind = start;
      EXPECT_FALSE(accepts(behind, repeated(max + 1))) << max;
    }
  }
}

TEST(GrammarLanguage, CharactersAreThoseOfTheRanges) {
  GrammarBuilder builder;
  const GrammarMatcher start = matcher_of(
      builder, builder.characters(
                   {{'x', 'z'}, {0x7f, 0x801}, {0xd700, 0xe010}, {0xfffe, 0x10010}, {0x10ffff, 0x10ffff}}));
  const auto is_in = [](char32_t c) {
    return (c >= 'x' && c <= 'z') || (c >= 0x7f && c <= 0x801) || (c >= 0xd700 && c <= 0xe010) ||
           (c >= 0xfffe && c <= 0x10010) || c == 0x10ffff;
  };
  const auto utf8 = [](char32_t c) {
    const auto tail = [&](int shift) { return static_cast<char>(0x80 | (c >> shift & 0x3f)); };
    if (c < 0x80) return std::string{static_cast<char>(c)};
    if (c < 0x800) return std::string{static_cast<char>(0xc0 | c >> 6), tail(0)};
    if (c < 0x10000) return std::string{static_cast<char>(0xe0 | c >> 12), tail(6), tail(0)};
    return std::string{static_cast<char>(0xf0 | c >> 18), tail(12), tail(6), tail(0)};
  };
  for (char32_t c = 0; c <= 0x10ffff; c += c < 0x11000 ? 1 : 251) {
    if (c >= 0xd800 && c <= 0xdfff) {
      EXPECT_FALSE(takes(start, utf8(c))) << static_cast<uint32_t>(c);
    } else {
      ASSERT_EQ(takes(start, utf8(c)), is_in(c)) << static_cast<uint32_t>(c);
    }
  }
  EXPECT_TRUE(takes(start, utf8(0x10ffff)));
  EXPECT_FALSE(takes(start, "\xc0\xf8"));
}

TEST(GrammarLanguage, WhatCannotBeCompiledIsRefused) {
  using ::testing::HasSubstr;
  GrammarBuilder builder;
  const GrammarBuilder::Rule left = builder.add_rule("left"), open = builder.add_rule("open");
  const GrammarBuilder::Rule endless = builder.add_rule("endless");
  const Expr maybe = builder.optional(builder.byte('a', 'a'));
  builder.define(left, builder.sequence({maybe, builder.reference(left), builder.byte('b', 'b')}));
  builder.define(endless, builder.sequence({builder.byte('b', 'b'), builder.reference(endless)}));
  const auto compile = [&](Expr root) {
    return test::refusal_of<GrammarError>([&] { compile_grammar(builder, root); });
  };
  EXPECT_THAT(compile(builder.reference(left)), HasSubstr("rule left begins with itself"));
  EXPECT_THAT(compile(builder.reference(open)), HasSubstr("rule open is not defined"));
  EXPECT_THAT(compile(builder.reference(endless)), HasSubstr("no text at all"));
  EXPECT_THAT(compile(builder.nothing()), HasSubstr("no text at all"));
  EXPECT_THAT(compile(builder.both(builder.literal("a"), builder.literal("b"))), HasSubstr("no text at all"));
  EXPECT_THAT(
      test::refusal_of<GrammarError>([&] { builder.minus(builder.literal("a"), builder.reference(left)); }),
      HasSubstr("refer to rules"));
  EXPECT_THAT(test::refusal_of<GrammarError>([&] { builder.repeat(maybe, 0, 1'000'001); }),
              HasSubstr("1000001 repetitions"));
}

TEST(GrammarLanguage, WhatIsTooLargeIsRefused) {
  using ::testing::HasSubstr;
  GrammarBuilder builder;
  const Expr any = builder.byte('a', 'b');
  EXPECT_THAT(test::refusal_of<GrammarError>([&] {
                Expr nested = any;
                for (int i = 0; i < 2000; ++i)
                  nested = builder.sequence({builder.optional(nested), any});
              }),
              HasSubstr("nested more than 1000 deep"));
  // A letter 40 from the end: 2^40 deterministic states. Alone it stays ambiguous; a difference needs all states.
  const Expr far =
      builder.sequence({builder.any_number(any), builder.literal("a"), builder.repeat(any, 40, 40)});
  const GrammarMatcher start = matcher_of(builder, far);
  EXPECT_TRUE(takes(start, "ba" + std::string(40, 'b')));
  EXPECT_FALSE(takes(start, "ab" + std::string(40, 'b')));
  EXPECT_THAT(test::refusal_of<GrammarError>([&] { compile_grammar(builder, builder.minus(any, far)); }),
              HasSubstr("more than 200000 states"));
  Expr bomb = any;
  for (int i = 0; i < 8; ++i)
    bomb = builder.sequence({builder.repeat(bomb, 1000, 1000), builder.byte('c', 'c')});
  EXPECT_THAT(test::refusal_of<GrammarError>(
                  [&] { compile_grammar(builder, builder.both(bomb, builder.any_number(any))); }),
              HasSubstr("the grammar takes"));
}

}  // namespace
}  // namespace minfer
