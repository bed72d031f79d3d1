#include "models/grammar/regex/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/grammar/grammar_source.h"
#include "tests/models/grammar/grammar_texts.h"

namespace minfer::test {
namespace {

using ::testing::HasSubstr;

struct RegexCase {
  std::string_view pattern;
  std::vector<std::string_view> accepted;
  std::vector<std::string_view> refused;
};

GrammarTexts whole(std::string_view pattern) {
  return GrammarTexts([&](GrammarBuilder& builder) { return add_regex(builder, pattern); });
}

void expect_texts(const RegexCase& test, const GrammarTexts& texts) {
  for (const std::string_view text : test.accepted)
    EXPECT_TRUE(texts.accepts(text)) << test.pattern << " should match " << text;
  for (const std::string_view text : test.refused)
    EXPECT_FALSE(texts.accepts(text)) << test.pattern << " should not match " << text;
}

TEST(Regex, MatchesWholeTexts) {
  const std::vector<RegexCase> cases{
      {"", {""}, {"a"}},
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"a*b+c?", {"b", "aabbc"}, {"a", "aac", "bcc"}},
      {"a{2}b{1,}c{0,2}", {"aab", "aabbbcc"}, {"ab", "aaabcc", "aabccc"}},
      {"a+?b*?c??", {"a", "aabc"}, {"b", "acc"}},
      {"(ab){2,3}", {"abab", "ababab"}, {"ab", "abababab"}},
      {"(?:a|b)(?<name>c)(d)", {"acd", "bcd"}, {"abcd", "cd"}},
      {"x{", {"x{"}, {"x"}},
      {"x{a}{,2}", {"x{a}{,2}"}, {"x", "xx"}},
      {"]}", {"]}"}, {}},
      {"^a$|^b|c$", {"a", "b", "c"}, {"ab"}},
      {"(^a|b)c", {"ac", "bc"}, {"abc"}},
      {"(^)?a($)?", {"a"}, {"aa"}},
      {".", {"a", "\t", "\u00e9", "\U0001f600"}, {"\n", "\r", "\u2028", "ab", "\xc3"}},
      {R"(\d\D\w\W\s\S)", {"5x_- y", "0\u00e9Z\n\u3000z"}, {"aaaaaa", "55_- y"}},
      {R"([a-cx-])", {"a", "c", "x", "-"}, {"d", "", "b-"}},
      {R"([^a-c\d])", {"d", "\n", "\u00e9"}, {"a", "7"}},
      {R"([\]\\\-\b^])", {"]", "\\", "-", "\b", "^"}, {"b", "\\]"}},
      {R"([\w-.])", {"a", "-", "."}, {"/"}},
      {R"([a-\d])", {"a", "-", "7"}, {"b"}},
      {R"([\x41-\u0043\u{1F600}])", {"A", "C", "\U0001f600"}, {"D"}},
      {R"(\uD83D\uDE00)", {"\U0001f600"}, {}},
      {R"(\t\n\v\f\r\0\cA\/\.)", {std::string_view("\t\n\v\f\r\0\x01/.", 9)}, {}},
      {"[^]", {"\n", "a"}, {""}},
      {"a[]|b", {"b"}, {"a"}},
      {R"(\p{Lu}\p{L}+\P{L})", {"\u00c4b1", "Ab-"}, {"ab1", "Abc"}},
      {R"(\p{gc=Nd})", {"1", "\u0663"}, {"a"}},
      {"\u00e9+", {"\u00e9\u00e9"}, {"\u00e9\xa9"}},
  };
  for (const RegexCase& test : cases)
    expect_texts(test, whole(test.pattern));
}

TEST(Regex, SearchesUnlessAnchored) {
  const std::vector<RegexCase> cases{
      {"b", {"b", "abc", "\nb\n"}, {"", "ac"}},
      {"^b", {"b", "bc"}, {"ab"}},
      {"b$", {"b", "ab"}, {"bc"}},
      {"^b$", {"b"}, {"ab", "bc"}},
      {"^a|b$", {"ax", "xb"}, {"xa", "bx"}},
      {"(^a|b)c", {"acx", "xbcx"}, {"xacx"}},
      {"a(b|c$)", {"xabx", "xac"}, {"xacx"}},
      {"x*^a", {"ab"}, {"xa"}},
      {"a^|b", {"xbx"}, {"a"}},
      {"", {"", "anything\n"}, {}},
      {"^(a{2}|b)?$", {"aa", "b", ""}, {"a"}},
  };
  for (const RegexCase& test : cases) {
    expect_texts(test, GrammarTexts([&](GrammarBuilder& builder) {
                   return regex_texts(builder, test.pattern, RegexScope::search, Spelling::plain);
                 }));
  }
}

TEST(Regex, SpellsWhatJsonEscapes) {
  const GrammarTexts texts([](GrammarBuilder& builder) {
    return regex_texts(builder, R"(^["\\\n\x01/é]+$)", RegexScope::search, Spelling::json_string);
  });
  EXPECT_TRUE(texts.accepts(R"(\"\\\n\u0001/)"
                            "\u00e9"));
  for (const std::string_view raw : {"\"", "\n", "\x01", "\\/", "\\u000a", "\\"})
    EXPECT_FALSE(texts.accepts(raw)) << raw;
}

TEST(Regex, RefusesWithThePlace) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases{
      {"a(?=b)", "byte 4: (?= (look-around) is not supported"},
      {"(?<!b)a", "(?<! (look-around)"},
      {R"((a)\1)", "back reference"},
      {R"(\k<a>)", "back reference"},
      {R"(\bword)", "word boundary"},
      {"(?i)a", "not supported"},
      {"(a", "a group is not closed"},
      {"a)", ") without its ("},
      {"[a", "a class is not closed"},
      {"[z-a]", "ends before it begins"},
      {"a{3,2}", "ends before it begins"},
      {"*a", "nothing to repeat"},
      {"a**", "nothing to repeat"},
      {R"(\q)", "no escape"},
      {R"(\x4)", "hexadecimal"},
      {R"(\u{110000})", "code point"},
      {R"(\p{Script=Greek})", "general categories"},
      {R"(a\p{N)", "\\p{ is not closed"},
      {"a\\", "ends where a character is expected"},
      {"(^a)+", "an anchor within what is repeated"},
      {"\xff", "not UTF-8"},
      {"a{99999999999999999999}", "a count is too large"},
      {"a^b", "no text at all"},
  };
  for (const auto& each : cases) {
    const auto& pattern = each.first;
    const auto& message = each.second;
    EXPECT_THAT(grammar_error([&](GrammarBuilder& builder) { return add_regex(builder, pattern); }),
                HasSubstr(message))
        << pattern;
  }
}

TEST(Regex, IsBounded) {
  const auto error = [](const std::string& pattern) {
    return grammar_error([&](GrammarBuilder& builder) { return add_regex(builder, pattern); });
  };
  EXPECT_THAT(error(std::string(100'000, '(')), HasSubstr("groups within each other"));
  EXPECT_NE(error("a{9999999}"), "");
  EXPECT_NE(error(std::string(300'000, 'a')), "");
  EXPECT_EQ(error(std::string(20'000, 'a')), "");  // long is not deep
  EXPECT_EQ(error("(a{1000}){1000}"), "");         // counted, not unrolled
}

}  // namespace
}  // namespace minfer::test
