// JSON as it is appended to records and responses: a parser reads what was written.
#include "profiling/json/json_text.h"

#include <limits>
#include <random>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace minfer {
namespace {

std::string written(std::string_view text) {
  std::string json;
  JsonText(json).value(text);
  return json;
}

TEST(JsonTextTest, PutsCommasAndEscapes) {
  std::string text;
  JsonText json(text);
  json.open('{').field("a", int64_t{-1}).field("b", std::string_view("x\"\\\n")).key("c").null();
  json.key("d").open('[').value(1.5).value(uint64_t{7}).open('{').close('}').close(']').close('}');
  EXPECT_EQ(text, R"({"a":-1,"b":"x\"\\\u000a","c":null,"d":[1.5,7,{}]})");
}

TEST(JsonTextTest, NumbersAreFiniteAndShort) {
  std::string text;
  JsonText json(text);
  json.open('[').value(0.12345, 3).value(2.0).value(-0.5, 1).value(std::numeric_limits<double>::infinity());
  json.value(std::numeric_limits<double>::quiet_NaN()).close(']');
  EXPECT_EQ(text, "[0.123,2,-0.5,0,0]");
}

TEST(JsonTextTest, EveryByteInEveryPlaceIsReadBack) {
  for (int c = 0; c < 256; ++c) {
    for (const std::string_view around : {"", "a", "ab\"", "\xC3\xA9"}) {
      const std::string text = std::string(around) + static_cast<char>(c) + std::string(around);
      const nlohmann::json read = nlohmann::json::parse(written(text));
      if (c < 0x80) {
        EXPECT_EQ(read.get<std::string>(), text) << c;
      } else {
        EXPECT_NE(read.get<std::string>().find("\xEF\xBF\xBD"), std::string::npos) << c;
      }
    }
  }
}

TEST(JsonTextTest, RandomBytesGiveValidJson) {
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes;
    for (uint32_t size = random() % 8; bytes.size() < size;)
      bytes += static_cast<char>(random() % 3 == 0 ? random() % 128 : 0x80 + random() % 128);
    EXPECT_TRUE(nlohmann::json::accept(written(bytes)));
  }
}

}  // namespace
}  // namespace minfer
