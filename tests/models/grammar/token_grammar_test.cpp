#include "models/grammar/token_grammar.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "models/grammar/grammar_source.h"
#include "models/tokenizer/vocabulary.h"

namespace minfer {
namespace {

using Expr = GrammarBuilder::Expr;

constexpr TokenId kEnd = 2;

/// <unk> <s> </s> <tool>, the bytes, then pieces of JSON and of text, whole characters and parts of them, and random ones.
constexpr std::string_view kJsonLetters = "ab{}[]\":,0123 e\\n";

Vocabulary made_vocabulary(int num_random, std::string_view letters) {
  Vocabulary vocabulary;
  vocabulary.name = "made for a test";
  vocabulary.tokens = {"<unk>", "<s>", "</s>", "<tool>"};
  vocabulary.types = {TokenType::unknown, TokenType::control, TokenType::control, TokenType::control};
  vocabulary.unknown = 0;
  vocabulary.bos = 1;
  vocabulary.eos = kEnd;
  const auto add = [&](std::string text, TokenType type) {
    if (std::ranges::find(vocabulary.tokens, text) != vocabulary.tokens.end()) return;
    vocabulary.tokens.push_back(std::move(text));
    vocabulary.types.push_back(type);
  };
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kHex = "0123456789ABCDEF";
    add({'<', '0', 'x', kHex[static_cast<size_t>(byte) / 16], kHex[static_cast<size_t>(byte) % 16], '>'},
        TokenType::byte);
  }
  for (const char* text :
       {"{\"", "\":", "\",\"", "\"}", "}}", "],[", "name", "\xe2\x96\x81the", "\xe2\x96\x81", "the name",
        "\xc3\xa9", "\xe4\xb8\xad\xe6\x96\x87", "\xf0\x9f\x98\x80", "true", "12", "345", "a\nb", "\\\"",
        "----------------------------------------"})
    add(text, TokenType::normal);
  std::mt19937 random(3);
  for (int i = 0; i < num_random; ++i) {
    std::string text;
    for (size_t length = 1 + random() % 5; length > 0; --length)
      text += letters[random() % letters.size()];
    add(text, TokenType::normal);
  }
  return vocabulary;
}

/// `num_unused`: ids beyond the vocabulary, like a model's padding.
std::shared_ptr<const TokenTrie> made_trie(int num_random = 400, int num_unused = 5,
                                           std::string_view letters = kJsonLetters) {
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(made_vocabulary(num_random, letters));
  return std::make_shared<const TokenTrie>(*tokenizer, tokenizer->vocab_size() + num_unused);
}

/// Strings, and objects and arrays of them: enough for nested calls.
Expr add_value(GrammarBuilder& builder) {
  const std::vector<CodePointRange> escaped = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
  const Expr character = builder.choice(
      {builder.characters(complement(escaped)), builder.literal("\\\""), builder.literal("\\n")});
  const Expr text =
      builder.sequence({builder.literal("\""), builder.any_number(character), builder.literal("\"")});
  const GrammarBuilder::Rule value = builder.add_rule("value");
  const Expr item = builder.reference(value);
  const auto list = [&](Expr element, const char* open, const char* close) {
    const Expr more = builder.any_number(builder.sequence({builder.literal(","), element}));
    return builder.sequence(
        {builder.literal(open), builder.optional(builder.sequence({element, more})), builder.literal(close)});
  };
  const Expr number = builder.repeat(builder.byte('0', '9'), 1, 4);
  builder.define(value,
                 builder.choice({text, number, builder.literal("true"), list(item, "[", "]"),
                                 list(builder.sequence({text, builder.literal(":"), item}), "{", "}")}));
  return item;
}

/// Tries each token alone: the definition of a mask.
void expect_mask_of_tokens(GrammarMatcher& matcher, const TokenTrie& trie) {
  const std::shared_ptr<const TokenMask> mask = matcher.mask();
  ASSERT_EQ(mask->words.size(), (static_cast<size_t>(trie.vocab_size()) + 31) / 32);
  int32_t num_allowed = 0;
  for (TokenId token = 0; token < trie.vocab_size(); ++token) {
    GrammarMatcher next = matcher;
    const bool allowed = token == kEnd ? matcher.may_end() : next.accept(token);
    ASSERT_EQ(mask->allows(token), allowed) << "token " << token << " \"" << trie.bytes(token) << '"';
    num_allowed += allowed;
  }
  EXPECT_EQ(mask->num_allowed, num_allowed);
  int32_t num_bits = 0;
  for (const uint32_t word : mask->words)
    num_bits += std::popcount(word);
  EXPECT_EQ(num_bits, num_allowed);
}

/// Draws tokens from masks, up to the text's end or `most` tokens.
void expect_masks_on_the_way(const std::shared_ptr<TokenGrammar>& grammar, int most, uint32_t seed) {
  std::mt19937 random(seed);
  GrammarMatcher matcher(grammar);
  for (int i = 0; i < most && !matcher.must_end(); ++i) {
    expect_mask_of_tokens(matcher, grammar->tokens());
    const std::shared_ptr<const TokenMask> mask = matcher.mask();
    ASSERT_GT(mask->num_allowed, 0);
    TokenId token = 0;
    do {
      token = static_cast<TokenId>(random() % static_cast<uint32_t>(grammar->tokens().vocab_size()));
    } while (!mask->allows(token));
    if (token == kEnd) return;
    ASSERT_TRUE(matcher.accept(token));
  }
}

TEST(TokenGrammar, MasksAllowWhatTheGrammarTakes) {
  GrammarBuilder builder;
  const auto grammar =
      std::make_shared<TokenGrammar>(compile_grammar(builder, add_value(builder)), made_trie());
  for (uint32_t seed = 0; seed < 20; ++seed)
    expect_masks_on_the_way(grammar, 12, seed);
}

/// Bounded texts: near the end some plain tokens do not fit.
TEST(TokenGrammar, MasksOfBoundedTexts) {
  GrammarBuilder builder;
  const Expr character = builder.characters(complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}}));
  const Expr text =
      builder.sequence({builder.literal("\""), builder.repeat(character, 2, 30), builder.literal("\"")});
  const auto grammar = std::make_shared<TokenGrammar>(compile_grammar(builder, text), made_trie());
  for (uint32_t seed = 0; seed < 10; ++seed)
    expect_masks_on_the_way(grammar, 30, seed);
}

TEST(TokenGrammar, PlainTokensAreAllowedAsAWholeWhereAllFit) {
  GrammarBuilder builder;
  const std::shared_ptr<const TokenTrie> trie = made_trie();
  EXPECT_GT(std::ssize(trie->plain().tokens), 100);
  const Expr any = builder.any_number(builder.characters(complement({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}})));
  const auto grammar = std::make_shared<TokenGrammar>(compile_grammar(builder, any), trie);
  GrammarMatcher matcher(grammar);
  expect_mask_of_tokens(matcher, *trie);
  EXPECT_GE(matcher.mask()->num_allowed, std::ssize(trie->plain().tokens));
}

TEST(TokenGrammar, ControlTokensAreAllowedWhereTheGrammarNamesThem) {
  GrammarBuilder builder;
  const Expr free_text = builder.any_number(builder.characters({{'a', 'z'}, {'<', '>'}}));
  const Expr root = builder.sequence({free_text, builder.literal("\xff<tool>"), builder.literal("x")});
  GrammarMatcher matcher(std::make_shared<TokenGrammar>(compile_grammar(builder, root), made_trie(0)));
  EXPECT_TRUE(matcher.mask()->allows(3));
  EXPECT_FALSE(matcher.mask()->allows(1));
  EXPECT_FALSE(matcher.mask()->allows(kEnd));
  EXPECT_TRUE(matcher.accept_bytes("ab<tool>"));  // as text it is not the token
  EXPECT_FALSE(matcher.may_end());
  EXPECT_TRUE(matcher.accept(3));
  EXPECT_EQ(matcher.forced_bytes(10), "x");
  EXPECT_FALSE(matcher.accept(3));
  EXPECT_TRUE(matcher.accept_bytes("x"));
  EXPECT_TRUE(matcher.must_end());
  EXPECT_TRUE(matcher.mask()->allows(kEnd));
  EXPECT_EQ(matcher.mask()->num_allowed, 1);
}

TEST(TokenGrammar, WhatIsForcedIsTold) {
  GrammarBuilder builder;
  const Expr digit = builder.byte('0', '9');
  const Expr root = builder.sequence({builder.literal("{\"n\xc3\xa9\":"), builder.repeat(digit, 1, 2),
                                      builder.optional(builder.literal("}"))});
  GrammarMatcher matcher(std::make_shared<TokenGrammar>(compile_grammar(builder, root), made_trie(0)));
  EXPECT_EQ(matcher.forced_bytes(100), "{\"n\xc3\xa9\":");
  EXPECT_EQ(matcher.forced_bytes(4), "{\"n\xc3");
  EXPECT_FALSE(matcher.accept_bytes("{\"m"));
  EXPECT_EQ(matcher.forced_bytes(2), "{\"");  // unchanged by the refused token
  ASSERT_TRUE(matcher.accept_bytes("{\"n\xc3\xa9\":12"));
  EXPECT_TRUE(matcher.may_end());
  EXPECT_FALSE(matcher.must_end());
  EXPECT_EQ(matcher.forced_bytes(100), "");
  EXPECT_FALSE(matcher.accept(-1));
  EXPECT_FALSE(matcher.accept(1 << 20));
}

/// A grammar of many states: its table is replaced while matchers hold states of the old table.
TEST(TokenGrammar, MatchersOutliveTheStatesTheyWereIn) {
  GrammarBuilder builder;
  const Expr item = add_value(builder);
  const auto grammar =
      std::make_shared<TokenGrammar>(compile_grammar(builder, item), made_trie(400, 100'000));
  GrammarMatcher early(grammar);
  ASSERT_TRUE(early.accept_bytes("[[{\"a\":[\"b"));
  const size_t most_bytes = 40u << 20;
  GrammarMatcher deep(grammar);
  size_t bytes = grammar->bytes(), replaced = 0;
  for (int i = 0; i < 1900; ++i) {  // nested: each level has its own states
    ASSERT_TRUE(deep.accept_bytes("[{\"x\":"));
    (void)deep.mask();
    GrammarMatcher inside = deep;
    for (int k = 0; k < 12; ++k) {
      ASSERT_TRUE(inside.accept_bytes(k == 0 ? "[" : k % 2 == 1 ? "12" : ","));
      (void)inside.mask();
    }
    replaced += grammar->bytes() < bytes ? 1 : 0;
    bytes = grammar->bytes();
    ASSERT_LT(bytes, most_bytes);
    ASSERT_FALSE(deep.accept_bytes("}"));
    if (replaced > 0) break;
  }
  EXPECT_GT(replaced, 0u);
  EXPECT_TRUE(early.accept_bytes("c\"]}]]"));
  EXPECT_TRUE(early.must_end());
}

TEST(TokenGrammar, NestingEndsSomewhere) {
  GrammarBuilder builder;
  GrammarMatcher matcher(
      std::make_shared<TokenGrammar>(compile_grammar(builder, add_value(builder)), made_trie(0)));
  int depth = 0;
  while (depth < 100'000 && matcher.accept_bytes("["))
    ++depth;
  EXPECT_GT(depth, 500);
  EXPECT_LT(depth, 100'000);
  EXPECT_GT(matcher.mask()->num_allowed, 0);
  EXPECT_TRUE(matcher.accept_bytes(std::string(static_cast<size_t>(depth), ']')));
  EXPECT_TRUE(matcher.must_end());
}

/// `count` rules that match brackets: letters, then their capitals in reverse.
std::string nested_rules(int count) {
  std::string text = "root ::= r0";
  for (int i = 1; i < count; ++i)
    text += " | r" + std::to_string(i);
  for (int i = 0; i < count; ++i) {
    const std::string name = "r" + std::to_string(i);
    text += "\n" + name + " ::= \".\"";
    for (char letter = 'a'; letter <= 'z'; ++letter)
      text +=
          std::string(" | \"") + letter + "\" " + name + " \"" + static_cast<char>(letter - 'a' + 'A') + '"';
  }
  return text;
}

/// Makes a mask before each character of the text. Returns the error if the grammar was refused; else empty.
std::string follow_counting(const std::function<Expr(GrammarBuilder&)>& add, std::string_view text) {
  static const auto trie = made_trie(4000, 5, "abcdefghijklmnopqrstuvwxyz x\n");
  constexpr size_t kMostOfByte = 1'000'000;
  GrammarBuilder builder;
  const Expr root = add(builder);
  const auto grammar = std::make_shared<TokenGrammar>(compile_grammar(builder, root), trie);
  GrammarMatcher matcher(grammar);
  for (const char c : text) {
    GrammarWork work;
    try {
      EXPECT_GT(matcher.mask(&work)->num_allowed, 0);
      EXPECT_TRUE(matcher.accept_bytes({&c, 1}, &work));
    } catch (const GrammarError& error) {
      return error.what();
    }
    EXPECT_LE(work.spent(), GrammarWork::kMost + kMostOfByte);
    EXPECT_LE(grammar->bytes(), 40u << 20);
  }
  return "";
}

// After n plain characters these are in one of 2^n sets of places: no mask may look at all of them.
TEST(TokenGrammar, ExponentialSetsOfPlacesAreNotWalked) {
  const std::string text = "xaxxaaxxaxaxaxxbxcxaaaxxxabc";
  EXPECT_EQ(
      follow_counting([](GrammarBuilder& b) { return add_gbnf(b, R"(root ::= "Q" [^\n]* "x" [^\n]{40})"); },
                      "Q" + text),
      "");
  EXPECT_EQ(follow_counting([](GrammarBuilder& b) { return add_regex(b, R"([\s\S]*a[\s\S]{40})"); }, text),
            "");
  EXPECT_EQ(follow_counting(
                [](GrammarBuilder& b) {
                  return add_regex(b, R"((\p{L}|\p{Lu}|\p{Ll}|[^\p{L}])*x(\p{L}|\P{N}){300})");
                },
                text),
            "");
}

TEST(TokenGrammar, AMaskThatTakesTooMuchIsRefused) {
  const auto nested = [](int count) {
    return follow_counting([count](GrammarBuilder& b) { return add_gbnf(b, nested_rules(count)); },
                           "abcdefg");
  };
  EXPECT_EQ(nested(1), "");
  EXPECT_THAT(nested(300), ::testing::HasSubstr("too ambiguous: one token takes more than"));
}

TEST(TokenGrammar, AMaskIsMadeInSlices) {
  GrammarBuilder builder;
  const Expr root = add_regex(builder, R"([\s\S]*a[\s\S]{40})");
  const std::shared_ptr<const Grammar> grammar = compile_grammar(builder, root);
  const auto trie = made_trie();
  GrammarMatcher whole(std::make_shared<TokenGrammar>(grammar, trie));
  GrammarMatcher sliced(std::make_shared<TokenGrammar>(grammar, trie));
  GrammarWork work;
  size_t num_pauses = 0;
  const auto in_slices = [&](const auto& ask) {
    while (true) {
      work.begin_slice(40'000);
      try {
        return ask();
      } catch (const GrammarPaused&) {
        if (++num_pauses > 10'000) throw;
      }
    }
  };
  for (const std::string_view text : {"", "xa", "aab", "\xc3", "\xa9 a"}) {
    work = {};
    in_slices([&] { EXPECT_TRUE(sliced.accept_bytes(text, &work)); });
    ASSERT_TRUE(whole.accept_bytes(text));
    in_slices([&] { EXPECT_EQ(sliced.mask(&work)->words, whole.mask()->words) << text; });
  }
  EXPECT_GT(num_pauses, 2u);
}

TEST(TokenGrammar, ManyGrammarsShareTheirMemory) {
  const auto memory = std::make_shared<GrammarMemory>(1u << 20);
  const auto trie = made_trie();
  std::vector<GrammarMatcher> matchers;
  for (int i = 0; i < 40; ++i) {
    GrammarBuilder builder;
    const Expr value = builder.sequence({builder.literal(std::to_string(i)), add_value(builder)});
    matchers.emplace_back(std::make_shared<TokenGrammar>(compile_grammar(builder, value), trie, memory));
    ASSERT_TRUE(matchers.back().accept_bytes(std::to_string(i) + "[[{\"a\":[\"b"));
    (void)matchers.back().mask();
    ASSERT_LT(memory->bytes(), 1u << 20);
  }
  for (GrammarMatcher& matcher : matchers) {
    expect_mask_of_tokens(matcher, *trie);
    EXPECT_TRUE(matcher.accept_bytes("c\"]}]]"));
    EXPECT_TRUE(matcher.must_end());
    ASSERT_LT(memory->bytes(), 1u << 20);
  }
  matchers.clear();
  EXPECT_EQ(memory->bytes(), 0u);
}

}  // namespace
}  // namespace minfer
