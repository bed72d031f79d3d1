#include "server/bench/json_skim.h"

#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace minfer {
namespace {

using Json = nlohmann::json;

TEST(JsonSkim, FindsMembersWhateverStandsBeforeThem) {
  const std::string object =
      " { \"a\" : {\"x\":[1,{\"x\":2}]}, \"text\\\"\":\"}\", \"s\":\"\\\"x\\\":1\", \"x\" : -1.5e3 ,"
      "\"last\":null}\n";
  EXPECT_EQ(json_member(object, "x"), "-1.5e3");
  EXPECT_EQ(json_member(object, "a"), "{\"x\":[1,{\"x\":2}]}");
  EXPECT_EQ(json_member(json_member(object, "a"), "x"), "[1,{\"x\":2}]");
  EXPECT_EQ(json_member(object, "last"), "null");
  EXPECT_EQ(json_member(object, "none"), "");
  EXPECT_EQ(json_member("{\"\\u0078\":7}", "x"), "7") << "names may be escaped";
}

TEST(JsonSkim, TellsWhatIsThereFromWhatIsNull) {
  EXPECT_FALSE(json_present(json_member("{\"usage\":null}", "usage")));
  EXPECT_FALSE(json_present(json_member("{}", "usage")));
  EXPECT_TRUE(json_present(json_member("{\"usage\":{}}", "usage")));
}

TEST(JsonSkim, FirstElements) {
  EXPECT_EQ(json_first("[ {\"a\":[1,2]} , 3]"), "{\"a\":[1,2]}");
  EXPECT_EQ(json_first("[]"), "");
  EXPECT_EQ(json_first("[ ]"), "");
  EXPECT_EQ(json_first("null"), "");
  EXPECT_EQ(json_first("[1]"), "1");
}

TEST(JsonSkim, DecodesStringsAndIntegers) {
  EXPECT_EQ(json_text("\"plain\""), "plain");
  EXPECT_EQ(json_text("\"a\\n\\u00e9\\ud83d\\ude00\\\"\""), "a\n\u00e9\U0001F600\"");
  EXPECT_EQ(json_text("null"), "");
  EXPECT_EQ(json_text("\"bad \\x\""), "");
  EXPECT_EQ(json_integer("42", -1), 42);
  EXPECT_EQ(json_integer("4.5", -1), -1);
  EXPECT_EQ(json_integer("", 7), 7);
}

std::string key(uint64_t number) {
  return fmt::format("k{}", number);
}

Json random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 3 ? 5 : 7)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int>(random()) / 3;
    case 3:
      return static_cast<double>(random()) * 1e-7;
    case 4:
      return random() % 2 == 0 ? "pl{a]in," : "q\"uo\\te\n\u20ac}";
    case 5: {
      Json array = Json::array();
      for (uint32_t i = random() % 4; i > 0; --i)
        array.push_back(random_value(random, depth + 1));
      return array;
    }
    default: {
      Json object = Json::object();
      for (uint32_t i = random() % 4; i > 0; --i)
        object[key(random() % 5)] = random_value(random, depth + 1);
      return object;
    }
  }
}

TEST(JsonSkim, AgreesWithAParserOnRandomObjects) {
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    Json object = Json::object();
    for (int k = 0; k < 4; ++k)
      object[key(random() % 6)] = random_value(random, 0);
    const std::string text = object.dump(i % 3 == 0 ? 2 : -1, ' ', i % 2 == 0);
    for (uint64_t k = 0; k < 6; ++k) {
      const std::string name = key(k);
      const std::string_view found = json_member(text, name);
      ASSERT_EQ(found.empty(), !object.contains(name)) << text;
      if (!found.empty()) {
        ASSERT_EQ(Json::parse(found), object[name]) << text;
      }
    }
  }
}

TEST(JsonSkim, TextThatIsNoJsonIsNotReadBeyond) {
  const std::string whole = "{\"a\":{\"b\":[1,\"x\\\"y\",{}]},\"c\":\"d\"}";
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::string part = whole.substr(0, size);  // of its own, so that sanitizers see its end
    json_member(part, "c");
    json_first(part);
    json_text(part);
  }
  for (const char* text : {"}", "{]", "{\"a\"}", "{\"a\":}", "[,", "{,}", "\"\\", "{\"a\":]"})
    EXPECT_EQ(json_member(text, "zz"), "") << text;
}

}  // namespace
}  // namespace minfer
