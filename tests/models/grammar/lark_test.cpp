#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/grammar/grammar_source.h"
#include "tests/models/grammar/grammar_texts.h"

namespace minfer::test {
namespace {

using ::testing::HasSubstr;

GrammarTexts texts_of_lark(std::string_view text, Spelling spelling = Spelling::plain) {
  return GrammarTexts([&](GrammarBuilder& builder) { return add_lark(builder, text, spelling); });
}

std::string lark_error(std::string_view text) {
  return grammar_error([&](GrammarBuilder& builder) { return add_lark(builder, text); });
}

struct LarkCase {
  std::string_view grammar;
  std::vector<std::string_view> accepted;
  std::vector<std::string_view> refused;
};

void expect_cases(const std::vector<LarkCase>& cases) {
  for (const LarkCase& test : cases) {
    const GrammarTexts texts = texts_of_lark(test.grammar);
    for (const std::string_view text : test.accepted)
      EXPECT_TRUE(texts.accepts(text)) << test.grammar << " should allow " << text;
    for (const std::string_view text : test.refused)
      EXPECT_FALSE(texts.accepts(text)) << test.grammar << " should not allow " << text;
  }
}

TEST(Lark, RulesTerminalsAndCounts) {
  expect_cases({
      {R"(start: "a" | "b" "c")", {"a", "bc"}, {"", "abc", "b"}},
      {"start: a B // comment\na: \"x\"\n # another\n B: \"y\" | \"z\"\n", {"xy", "xz"}, {"x", "yx"}},
      {"?start: \"a\"\n  | \"b\" -> name\n\n  | c\n!c: (\"c\"\n | \"d\") \"e\"",
       {"a", "b", "ce", "de"},
       {"c"}},
      {R"(start: "a"? "b"* "c"+ ["d"])", {"c", "abbccd"}, {"ab", "cdd"}},
      {R"(start: "a"~2 "b"~1..3 "c"{2} "d"{,1} "e"{1,})",
       {"aabcce", "aabbbccdeee"},
       {"abcce", "aabbbbcce", "aabccd"}},
      {"start: |\"a\" start", {"", "aaa"}, {"b"}},
      {R"(start: "a".."c" "\n\t\"\\\x41\u00e9")", {"b\n\t\"\\A\u00e9"}, {"d\n\t\"\\A\u00e9"}},
      {"start: \"(\" start \")\" | \"x\"", {"x", "((x))"}, {"(x", "()"}},
      {"start: A\nA: B+ \"!\"\nB: /[a-c]/ | C\nC: \"d\"", {"ad!", "d!"}, {"!", "e!"}},
  });
}

TEST(Lark, RegularExpressionsAndFlags) {
  expect_cases({
      {R"(start: /a[b-d]+\/x/)", {"abd/x"}, {"a/x", "abx"}},
      {R"(start: /ab[c-e]/i "X"i "é")", {"aBDx\u00e9", "ABeX\u00e9"}, {"aBfX\u00e9"}},
      {R"(start: /[^ak]/i)", {"b", "1"}, {"a", "A", "K", "\u212a"}},
      {R"(start: /a.b/)", {"axb"}, {"a\nb"}},
      {R"(start: /a.b/s)", {"axb", "a\nb"}, {"ab"}},
  });
}

/// Grammars of expressions are written in this way; a rule that begins with itself repeats the part behind that.
TEST(Lark, LeftRecursion) {
  expect_cases({
      {"start: sum\nsum: sum \"+\" product | sum \"-\" product | product\nproduct: product \"*\" atom | "
       "atom\natom: /[0-9]/ | \"(\" sum \")\"",
       {"1", "1+2*3-4", "(1+2)*3", "((1))"},
       {"+1", "1+", "1**2", "(1"}},
  });
  EXPECT_THAT(lark_error("start: a\na: b \"x\" | \"y\"\nb: a \"z\""), HasSubstr("left recursion"));
}

TEST(Lark, ImportsAndWhatIsIgnored) {
  expect_cases({
      {"start: NAME \"=\" INT\n%import common.CNAME -> NAME\n%import common (INT, WS)\n%ignore WS\n%ignore "
       "/#[^\\n]*/",
       {"a=1", " a = 12 ", "a # x\n=\t1\n"},
       {"a=", "a b=1", "1=a"}},
      {"start: ESCAPED_STRING SIGNED_NUMBER\n%import common.ESCAPED_STRING\n%import common.SIGNED_NUMBER",
       {"\"a\\\"b\"-1.5e3", "\"\"7", "\"\".5"},
       {"\"a\"b\"1", "\"\"1e", " \"\"1"}},
  });
}

constexpr std::string_view kPatch = R"(start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?
hunk: add_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
update_hunk: "*** Update File: " filename LF change?
filename: /(.+)/
add_line: "+" /(.*)/ LF -> line
change: (("@@" | "@@ " /(.+)/) LF | ("+" | "-" | " ") /(.*)/ LF)+
%import common.LF
)";

TEST(Lark, PatchesAsTextAndWithinAJsonString) {
  const GrammarTexts plain = texts_of_lark(kPatch), quoted = texts_of_lark(kPatch, Spelling::json_string);
  const std::string patch =
      "*** Begin Patch\n*** Add File: a.txt\n+\"x\"\n*** Update File: b\n@@ f\n-a\n+b\n*** End Patch";
  EXPECT_TRUE(plain.accepts(patch));
  EXPECT_FALSE(plain.accepts("*** Begin Patch\n*** End Patch"));
  EXPECT_FALSE(plain.accepts("*** Begin Patch\n*** Add File: a\nx\n*** End Patch"));
  const std::string dumped = nlohmann::json(patch).dump();
  EXPECT_TRUE(quoted.accepts(dumped.substr(1, dumped.size() - 2)));
  EXPECT_FALSE(quoted.accepts(patch));
}

TEST(Lark, ErrorsNameTheLineAndWhatIsExpected) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases{
      {"", "no rule named \"start\""},
      {"a: \"x\"", "no rule named \"start\""},
      {"start: \"a\"\n\nstart: \"b\"", "start is defined twice"},
      {"start: a\n", "line 1: the rule a is not defined"},
      {"start: \"x\"\n  A\n", "line 2: a part of a rule, | or the next definition expected, found \"A\""},
      {"start: A", "line 1: the terminal A is not defined"},
      {"start: A\nA: B\nB: A", "the terminal A refers to itself"},
      {"start: A\nA: b\nb: \"x\"", "line 2: a terminal refers to the rule b"},
      {"start: (\"a\"\n | \"b\"", "line 2: ) expected, found the end"},
      {"start: \"a", "line 1: \" at the end of a string expected, found the end"},
      {"start: \"\\q\"", "an escape"},
      {"start: /a", "/ at the end of a regular expression"},
      {"start: /a/x", "one of the flags i, s and u expected, found \"x\""},
      {"start:\n  /(?=a)/", "line 2: regular expression, byte"},
      {"start: /\xc3\xa9/i", "only ASCII"},
      {"start: \"a\"~3..2", "3 to 2 repetitions"},
      {"start: \"a\"{x}", "a count, of 0 or more, expected, found \"x}\""},
      {"start: A\nA.2: \"x\"", "line 2: A: priorities are not supported"},
      {"start: a{b}\na{x}: x", "templates are not supported"},
      {"start: <|end|>", "tokens (<...>) are not supported"},
      {"start: %json {}", "a grammar within a rule"},
      {"%declare A\nstart: A", "line 1: %import or %ignore"},
      {"%import common.NOTHING\nstart: NOTHING", "common has no NOTHING"},
      {"%import python.NAME\nstart: NAME", "common (terminals can"},
      {"start: \"b\"..\"a\"", "a range of two characters"},
      {"| \"a\"", "a rule expected, found |"},
  };
  for (const auto& [grammar, message] : cases)
    EXPECT_THAT(lark_error(grammar), HasSubstr(message)) << grammar;
  std::string deep = "start: ", chain = "start: T0\n";
  for (int i = 0; i < 10'000; ++i) {
    deep += '(';
    chain += "T" + std::to_string(i) + ": T" + std::to_string(i + 1) + "\n";
  }
  EXPECT_THAT(lark_error(deep), HasSubstr("within each other"));
  EXPECT_THAT(lark_error(chain), HasSubstr("terminals within each other"));
}

}  // namespace
}  // namespace minfer::test
