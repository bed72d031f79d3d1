// Bodies as a socket delivers them: a body that is no JSON object within the limits is refused with a message.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/api/fields/json_fields.h"
#include "tests/support/server/api_requests.h"

namespace minfer {
namespace {

using ::testing::HasSubstr;

std::string repeat(std::string_view text, size_t times) {
  std::string all;
  for (size_t i = 0; i < times; ++i)
    all += text;
  return all;
}

std::string refusal(std::string_view body) {
  const auto error = test::api_error_of([&] { parse_json_body(body); });
  EXPECT_TRUE(error) << body.substr(0, 80);
  if (!error) return {};
  EXPECT_EQ(error->status(), 400);
  EXPECT_TRUE(nlohmann::json::accept(error_json(*error)));  // also valid UTF-8
  EXPECT_LT(std::string_view(error->what()).size(), 400u);
  return error->what();
}

TEST(JsonBodyTest, GivesWhatTheTextSays) {
  const std::string text =
      R"({"b":[1,-2,3.5,true,null,"\u00e9\n"],"a":{"z":{},"y":[]},"big":18446744073709551615})";
  EXPECT_EQ(parse_json_body(text), nlohmann::ordered_json::parse(text));
  EXPECT_EQ(parse_json_body(" {\"a\" : 1} \n").dump(), R"({"a":1})");
}

TEST(JsonBodyTest, NamesThePlaceOfWhatIsNoJson) {
  EXPECT_THAT(refusal("{\"a\":1,\n \"b\":tru}"), HasSubstr("line 2, column"));
  EXPECT_THAT(refusal("{\"a\":\"\xC3\x28\"}"), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal("{\"a\":1e400}"), HasSubstr("1e400"));
  for (const char* body : {"{", "{\"a\"}", "{\"a\":NaN}", "{\"a\":Infinity}", "{'a':1}", "{\"a\":01}", "{}{}",
                           "{\"a\":1,}", "\xFF", "{\"a\":\"\x01\"}", "{\"a\":\"\\ud800\"}", "// x\n{}"}) {
    EXPECT_THAT(refusal(body), HasSubstr("not valid JSON")) << body;
  }
  EXPECT_THAT(refusal(std::string_view("{\"a\":\0}", 7)), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(1 << 20, 'x')), HasSubstr("not valid JSON"));
}

TEST(JsonBodyTest, RefusesWhatIsNoObject) {
  EXPECT_THAT(refusal(""), HasSubstr("empty"));
  EXPECT_THAT(refusal(" \r\n"), HasSubstr("empty"));
  EXPECT_THAT(refusal("[]"), HasSubstr("an array"));
  EXPECT_THAT(refusal("\"x\""), HasSubstr("\"x\""));
  EXPECT_THAT(refusal("17"), HasSubstr("17"));
  EXPECT_THAT(refusal("null"), HasSubstr("null"));
}

TEST(JsonBodyTest, RefusesAMemberNamedTwice) {
  EXPECT_THAT(refusal(R"({"n":1,"m":2,"n":1})"), HasSubstr("\"n\""));
  EXPECT_THAT(refusal(R"({"a":[{"b":{"k":1,"\u006b":2}}]})"), HasSubstr("\"k\""));
  EXPECT_NO_THROW(parse_json_body(R"({"a":{"k":1},"b":{"k":1},"k":1})"));
}

TEST(JsonBodyTest, HoldsItsLimitsExactly) {
  const auto nested = [](size_t arrays) {
    return "{\"a\":" + std::string(arrays, '[') + std::string(arrays, ']') + "}";
  };
  EXPECT_NO_THROW(parse_json_body(nested(kMaxJsonDepth - 1)));
  EXPECT_THAT(refusal(nested(kMaxJsonDepth)), HasSubstr("deeper than 64"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(1 << 20, '[')), HasSubstr("deeper than 64"));

  std::string members = "\"m0\":0";
  for (size_t i = 1; i < kMaxJsonMembers; ++i)
    members += ",\"m" + std::to_string(i) + "\":0";
  EXPECT_NO_THROW(parse_json_body("{" + members + "}"));
  EXPECT_THAT(refusal("{" + members + ",\"more\":0}"), HasSubstr("more than 1024 members"));

  // The object and the array also count as values.
  EXPECT_NO_THROW(parse_json_body("{\"a\":[0" + repeat(",0", kMaxJsonValues - 3) + "]}"));
  EXPECT_THAT(refusal("{\"a\":[0" + repeat(",0", kMaxJsonValues - 2) + "]}"),
              HasSubstr("1048576 JSON values"));
}

TEST(JsonBodyTest, DescribesValuesShortly) {
  EXPECT_EQ(describe(1.5), "1.5");
  EXPECT_EQ(describe(true), "true");
  EXPECT_EQ(describe(nlohmann::ordered_json::array({1})), "an array");
  EXPECT_EQ(describe(nlohmann::ordered_json::object()), "an object");
  EXPECT_EQ(describe("a\nb"), "\"a\\nb\"");
  EXPECT_LT(describe(std::string(1000, 'x')).size(), 80u);
}

}  // namespace
}  // namespace minfer
