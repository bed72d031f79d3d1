// Conversion to JSON of values that are no JSON: Python's literals, and texts between tags.
#include "models/chat/answer/values/loose_value.h"

#include <array>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace minfer::answers {
namespace {

using nlohmann::ordered_json;

/// The JSON of a whole text; "failed" and the place if there is none.
std::string json_of(std::string_view text, const LooseSyntax& syntax = {}) {
  LooseValue value(syntax);
  std::string json;
  for (size_t i = 0; i < text.size(); ++i) {
    const ReadStep step = value.push(text[i], json);
    if (step == ReadStep::failed) return "failed at " + std::to_string(i);
    if (step != ReadStep::more) return json;
  }
  return value.push(')', json) == ReadStep::ended ? json : "not ended";
}

std::string python_text(const std::string& text, char quote) {
  std::string literal(1, quote);
  for (const char c : text) {
    if (c == quote || c == '\\') literal += '\\';
    literal += c == '\n' ? "\\n" : std::string(1, c);
  }
  return literal + quote;
}

/// A random value, in JSON and in Python.
std::pair<ordered_json, std::string> random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 7 : 5)) {
    case 0:
      return {nullptr, "None"};
    case 1:
      return {true, "True"};
    case 2:
      return {-3, "-3"};
    case 3:
      return {1.5, "1.5"};
    case 4: {
      const std::string text = std::array{"", "a", "it's", "\"q\"", "a\\b\n", "é, (x) [y] {z}"}[random() % 6];
      return {text, python_text(text, random() % 2 == 0 ? '\'' : '"')};
    }
    case 5: {
      ordered_json array = ordered_json::array();
      const bool is_tuple = random() % 2 == 0;
      std::string text = is_tuple ? "(" : "[";
      for (auto i = random() % 4; i > 0; --i) {
        const auto [json, python] = random_value(random, depth - 1);
        array.push_back(json);
        text += python + (random() % 2 == 0 ? ", " : ",");
      }
      return {array, text + (is_tuple ? ')' : ']')};
    }
    default: {
      ordered_json object = ordered_json::object();
      std::string text = "{";
      for (auto i = random() % 4; i > 0; --i) {
        const auto [json, python] = random_value(random, depth - 1);
        object["k" + std::to_string(i)] = json;
        if (text.size() > 1) text += ", ";
        text += "'k" + std::to_string(i) + "' : " + python;
      }
      return {object, text + "}"};
    }
  }
}

TEST(LooseValue, ReadsPython) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const auto [json, python] = random_value(random, 4);
    const std::string found = json_of(python);
    ASSERT_TRUE(ordered_json::accept(found)) << python << "\n" << found;
    EXPECT_EQ(ordered_json::parse(found), json) << python;
  }
}

TEST(LooseValue, RefusesWhatIsNoLiteral) {
  EXPECT_EQ(json_of("x"), "not ended");
  EXPECT_EQ(json_of("[x]"), "failed at 2");
  EXPECT_EQ(json_of("[1 2]"), "failed at 3");
  EXPECT_EQ(json_of("{1: 2}"), "failed at 2");
  EXPECT_EQ(json_of("{'a' 2}"), "failed at 5");
  EXPECT_EQ(json_of("[1}"), "failed at 2");
  EXPECT_EQ(json_of("{'a': }"), "failed at 6");
  EXPECT_EQ(json_of("[,]"), "failed at 1");
  EXPECT_EQ(json_of("{[1]: 2}"), "failed at 1");
  EXPECT_EQ(json_of("01"), "not ended");
  EXPECT_EQ(json_of(std::string(kMaxJsonDepth + 1, '[')), "failed at " + std::to_string(kMaxJsonDepth));
}

TEST(LooseValue, ReadsBareWordsAndTextsBetweenMarkers) {
  const LooseSyntax syntax{.quote = "<escape>", .bare_words = true};
  EXPECT_EQ(json_of("{a:<escape>x <es\"<escape>,b : [1, c], d:true}", syntax),
            R"({"a": "x <es\"", "b": [1, "c"], "d": true})");
  EXPECT_EQ(json_of("{a:<b}", syntax), "failed at 4");
}

std::string tagged(std::string_view text, JsonTypes types = kAnyType, bool has_line_ends = false) {
  TaggedValue value(types, has_line_ends);
  std::string json;
  for (const char c : text)
    value.push(c, json);
  value.finish(json);
  return json;
}

TEST(TaggedValue, IsATextUnlessItReadsAsAnotherType) {
  EXPECT_EQ(tagged("Oslo"), R"("Oslo")");
  EXPECT_EQ(tagged("12"), "12");
  EXPECT_EQ(tagged("12 apples"), R"("12 apples")");
  EXPECT_EQ(tagged("\"q\""), R"("\"q\"")");
  EXPECT_EQ(tagged("nothing"), R"("nothing")");
  EXPECT_EQ(tagged(" null\n"), "null");
  EXPECT_EQ(tagged(""), R"("")");
  EXPECT_EQ(tagged(" "), R"(" ")");
  EXPECT_EQ(tagged("{\"a\": \"x\ny\"}"), R"({"a": "x\ny"})");
}

TEST(TaggedValue, FollowsTheSchema) {
  EXPECT_EQ(tagged("12", kString), R"("12")");
  EXPECT_EQ(tagged("12", kString | kNull), R"("12")");
  EXPECT_EQ(tagged("null", kString | kNull), "null");
  EXPECT_EQ(tagged("True", kBoolean), "true");
  EXPECT_EQ(tagged("True", kString | kNumber), R"("True")");
  EXPECT_EQ(tagged("[1]", kObject), R"("[1]")");
  EXPECT_EQ(tagged("x", kNumber), R"("x")");
}

TEST(TaggedValue, DropsOneLineEndAtEachEnd) {
  EXPECT_EQ(tagged("\na\n", kAnyType, true), R"("a")");
  EXPECT_EQ(tagged("\n\na\n\n", kAnyType, true), R"("\na\n")");
  EXPECT_EQ(tagged("a", kAnyType, true), R"("a")");
  EXPECT_EQ(tagged("\n", kAnyType, true), R"("")");
  EXPECT_EQ(tagged("\n\n", kString, true), R"("")");
  EXPECT_EQ(tagged("\na\n", kAnyType, false), R"("\na\n")");
}

}  // namespace
}  // namespace minfer::answers
