// Texts of custom tools from arguments that arrive in pieces: the same whatever the cuts.
#include "models/chat/answer/custom_input.h"

#include <gtest/gtest.h>

#include "models/tokenizer/utf8.h"

namespace minfer {
namespace {

struct Case {
  std::string_view arguments;
  std::string_view text;      ///< of a call that has ended
  std::string_view cut_text;  ///< of a call that was cut behind these arguments
};

const std::vector<Case> kCases{
    {R"({"input":"+ a line"})", "+ a line", "+ a line"},
    {" {\n\t\"input\" : \"a\" } ", "a", "a"},
    {R"({"input":""})", "", ""},
    {R"({"input":"\"\\\/\b\f\n\r\t<\u0041\u00e9\u20ac>"})", "\"\\/\b\f\n\r\t<Aé€>", "\"\\/\b\f\n\r\t<Aé€>"},
    {R"({"input":"😀 é € \ud83d\ude00 \ud83d x \ude00 \ud83d\u0041"})", "😀 é € 😀 � x � �A",
     "😀 é € 😀 � x � �A"},
    {"{\"input\":\"a\nb\"}", "a\nb", "a\nb"},
    // Behind the text.
    {R"({"input":"a","input":"b","more":{}} and more)", "a", "a"},
    // Cut within it.
    {R"({"input":"ab)", "ab", "ab"},
    {R"({"input":"ab\)", "ab", "ab"},
    {R"({"input":"ab\u00e)", "ab", "ab"},
    {R"({"input":")", "", ""},
    // In front of it.
    {R"({"inp)", R"({"inp)", ""},
    {"{ ", "{ ", ""},
    {"", "", ""},
    // No such object.
    {"{}", "{}", "{}"},
    {"*** Begin Patch\n€\n", "*** Begin Patch\n€\n", "*** Begin Patch\n€\n"},
    {R"({"text":"a"})", R"({"text":"a"})", R"({"text":"a"})"},
    {R"({"input":7})", R"({"input":7})", R"({"input":7})"},
    {R"({"more":1,"input":"a"})", R"({"more":1,"input":"a"})", R"({"more":1,"input":"a"})"},
    {R"({"in put":"a"})", R"({"in put":"a"})", R"({"in put":"a"})"},
    {R"(["input":"a"])", R"(["input":"a"])", R"(["input":"a"])"},
    // No such escape.
    {R"({"input":"a\q\u00zb\n"})", "a\\q\\u00zb\n", "a\\q\\u00zb\n"},
    {"{\"input\":\"a\xff\"}", "a�", "a�"},
    {"raw \xe2\x82", "raw �", "raw �"},
};

std::string custom_input(std::string_view arguments, bool whole) {
  CustomInput input;
  std::string text = input.push(arguments);
  return text + input.finish(whole);
}

TEST(CustomInputTest, IsTheTextOfTheOneArgument) {
  for (const Case& each : kCases) {
    EXPECT_EQ(custom_input(each.arguments, true), each.text) << each.arguments;
    EXPECT_EQ(custom_input(each.arguments, false), each.cut_text) << each.arguments;
  }
}

TEST(CustomInputTest, EverySplitGivesTheSameInWholeCharacters) {
  for (const Case& each : kCases) {
    for (size_t first = 0; first <= each.arguments.size(); ++first) {
      for (size_t second = first; second <= each.arguments.size(); ++second) {
        CustomInput input;
        std::string text;
        for (const std::string& piece : {input.push(each.arguments.substr(0, first)),
                                         input.push(each.arguments.substr(first, second - first)),
                                         input.push(each.arguments.substr(second)), input.finish(true)}) {
          EXPECT_EQ(valid_utf8_prefix(piece), piece.size()) << each.arguments;
          text += piece;
        }
        EXPECT_EQ(text, each.text) << each.arguments << " cut at " << first << " and " << second;
      }
    }
  }
}

TEST(CustomInputTest, TextIsGivenAsSoonAsItIsKnown) {
  CustomInput input;
  EXPECT_EQ(input.push(R"({"input": ")"), "");
  EXPECT_EQ(input.push("ab"), "ab");
  EXPECT_EQ(input.push(R"(c\)"), "c");
  EXPECT_EQ(input.push(R"(n\ud83d)"), "\n");
  EXPECT_EQ(input.push(R"(\ude00)"), "😀");
  EXPECT_EQ(input.push("\xe2\x82"), "");
  EXPECT_EQ(input.push("\xac\"}"), "€");
  EXPECT_EQ(input.finish(true), "");
}

}  // namespace
}  // namespace minfer
