#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/grammar/grammar_source.h"
#include "tests/models/grammar/grammar_texts.h"

namespace minfer::test {
namespace {

using ::testing::HasSubstr;

struct GbnfCase {
  std::string_view grammar;
  std::vector<std::string_view> accepted;
  std::vector<std::string_view> refused;
};

std::string gbnf_error(const std::string& grammar) {
  return grammar_error([&](GrammarBuilder& builder) { return add_gbnf(builder, grammar); });
}

TEST(Gbnf, ReadsItsSyntax) {
  const std::vector<GbnfCase> cases{
      {"root ::= \"yes\" | \"no\"", {"yes", "no"}, {"", "yesno"}},
      {"# a comment\n\nroot ::= a b # another\na ::= \"x\"\nb ::= [0-9]+\n", {"x1", "x42"}, {"x", "1"}},
      {"root ::= (\n  \"a\"\n  | \"b\" # in between\n) \"c\"", {"ac", "bc"}, {"c"}},
      {"root ::= \"a\" |\n  \"b\"", {"a", "b"}, {"ab"}},
      {"root ::=\n  \"a\"\n  | \"b\"\nother ::= \"c\"", {"a", "b"}, {"c"}},
      {"root ::= \"ab\"* \"c\"? \"d\"+", {"d", "ababcdd"}, {"abc", "aad"}},
      {"root ::= \"a\"{2} \"b\"{1,} \"c\"{,2} \"d\"{ 0 , 1 }", {"aab", "aabbccd"}, {"aaab", "aabccc"}},
      {"root ::= [^a-c\\n] [-x] [a-]", {"d-a", "\u00e9x-"}, {"axa", "\nxa"}},
      {R"(root ::= "\x41\u00e9\U0001F600\t\"\\" [\]\[\x30-\x39])",
       {"A\u00e9\U0001f600\t\"\\]", "A\u00e9\U0001f600\t\"\\7"},
       {"A"}},
      {"root ::= . .", {"a\n", "\u00e9\u00e9"}, {"a"}},
      {"root ::= \"\" | item root\nitem ::= \"(\" root \")\"", {"", "()", "(()())"}, {"(", ")("}},
      {"root ::= a-rule\r\na-rule ::= \"x\"\r\n", {"x"}, {""}},
      {"root ::= (\"a\" | )", {"a", ""}, {"aa"}},
  };
  for (const GbnfCase& test : cases) {
    const GrammarTexts texts([&](GrammarBuilder& builder) { return add_gbnf(builder, test.grammar); });
    for (const std::string_view text : test.accepted)
      EXPECT_TRUE(texts.accepts(text)) << test.grammar << " : " << text;
    for (const std::string_view text : test.refused)
      EXPECT_FALSE(texts.accepts(text)) << test.grammar << " : " << text;
  }
}

TEST(Gbnf, RefusesWithTheLine) {
  const std::vector<std::pair<std::string, std::string_view>> cases{
      {"", "no rule named \"root\""},
      {"a ::= \"x\"", "no rule named \"root\""},
      {"root ::= a\na ::= b", "line 2: the rule \"b\" is not defined"},
      {"root ::= \"a", "line 1: a literal or class is not closed"},
      {"root ::= \"a\"\n\nroot ::= \"b\"", "line 3: the rule \"root\" is defined twice"},
      {"root = \"a\"", "::= expected behind \"root\""},
      {"root ::= (\"a\"", "a group is not closed"},
      {"root ::= \"a\")", "the end of the line"},
      {"root ::= [z-a]", "ends before it begins"},
      {"root ::= \"a\"{3,2}", "ends before it begins"},
      {"root ::= \"a\"{x}", "a count expected"},
      {"root ::= \"\\q\"", "no such escape"},
      {"root ::= \"\\x4\"", "hexadecimal"},
      {"root ::= <think>", "tokens"},
      {"root ::= root \"a\" | \"b\"", "left recursion"},
      {"root ::= \"a\" root", "no text at all"},
  };
  for (const auto& [grammar, message] : cases)
    EXPECT_THAT(gbnf_error(grammar), HasSubstr(message)) << grammar;
}

TEST(Gbnf, AMinusMayBeEscaped) {
  const GrammarTexts texts(
      [](GrammarBuilder& builder) { return add_gbnf(builder, "root ::= [a\\-z]+ \"\\-\""); });
  for (const char* text : {"a-", "--", "z-a-"})
    EXPECT_TRUE(texts.accepts(text)) << text;
  for (const char* text : {"b-", "a", "\\-"})
    EXPECT_FALSE(texts.accepts(text)) << text;
}

TEST(Gbnf, IsBounded) {
  EXPECT_THAT(gbnf_error("root ::= " + std::string(100'000, '(')),
              HasSubstr("parentheses within each other"));
  EXPECT_NE(gbnf_error("root ::= \"a\"" + std::string(100'000, '?')), "");
  EXPECT_THAT(gbnf_error("root ::= \"a\"{99999999}"), HasSubstr("repetitions"));
}

TEST(Choices, AreTheTextsThemselves) {
  const GrammarTexts texts([](GrammarBuilder& builder) {
    return add_choices(builder, {"positive", "negative", "neg", "", "pos\n", "positive"});
  });
  for (const std::string_view text : {"positive", "negative", "neg", "", "pos\n"})
    EXPECT_TRUE(texts.accepts(text)) << text;
  for (const std::string_view text : {"pos", "n", "negativepositive"})
    EXPECT_FALSE(texts.accepts(text)) << text;
  EXPECT_THAT(grammar_error([](GrammarBuilder& builder) { return add_choices(builder, {}); }),
              HasSubstr("at least one expected"));
}

TEST(Choices, MayBeMany) {
  std::vector<std::string> many;
  for (int i = 0; i < 100'000; ++i)
    many.push_back(fmt::format("value_{:05}", i));
  const GrammarTexts texts([&](GrammarBuilder& builder) { return add_choices(builder, many); });
  EXPECT_TRUE(texts.accepts("value_31415"));
  EXPECT_FALSE(texts.accepts("value_3141"));
  std::vector<std::string> nested;  // each begins with the one before
  for (size_t i = 0; i < 600; ++i)
    nested.emplace_back(i, 'a');
  const GrammarTexts deep([&](GrammarBuilder& builder) { return add_choices(builder, nested); });
  EXPECT_TRUE(deep.accepts(std::string(599, 'a')));
  EXPECT_FALSE(deep.accepts(std::string(600, 'a')));
}

}  // namespace
}  // namespace minfer::test
