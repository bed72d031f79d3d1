// Schemas that would take more time, memory or depth than allowed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/grammar/schema_texts.h"

namespace minfer::test {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchemaBounds, IsBounded) {
  const auto nested = [](int depth, const std::string& open, const std::string& close) {
    std::string text;
    for (int i = 0; i < depth; ++i)
      text += open;
    text += "true";
    for (int i = 0; i < depth; ++i)
      text += close;
    return text;
  };
  EXPECT_THAT(schema_error(nested(10'000, R"({"items":)", "}")), HasSubstr("nested more than"));
  EXPECT_THAT(schema_error(nested(10'000, R"({"allOf":[)", "]}")), HasSubstr("nested more than"));
  EXPECT_EQ(schema_error(nested(200, R"({"items":)", "}")), "");

  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 2'000; ++i)
    chain += fmt::format(R"("d{}":{{"$ref":"#/$defs/d{}","minimum":0}},)", i, i + 1);
  EXPECT_THAT(schema_error(chain + R"("d2000":true}})"), HasSubstr("schemas that refer to each other"));

  std::string groups = R"({"allOf":[)";
  for (int i = 0; i < 60; ++i)
    groups += R"({"anyOf":[{"type":"string"},{"type":"string","maxLength":3}]},)";
  EXPECT_NE(schema_error(groups + R"({"type":"string"}]})"), "");
  EXPECT_NE(schema_error(groups + R"({"anyOf":[{"type":"integer"},{"type":"null"}]}]})"), "");
}

// The text of other numbers is lost when JSON is read: they would become other numbers.
TEST(JsonSchemaBounds, IntegersOf64BitsAreExact) {
  expect_cases({
      {R"({"const":9007199254740993})", {"9007199254740993"}, {"9007199254740992", "9007199254740994"}},
      {R"({"enum":[-9223372036854775808,18446744073709551615]})",
       {"-9223372036854775808", "18446744073709551615"},
       {"-9223372036854775807", "18446744073709551614", "1.8446744073709552e+19"}},
      {R"({"enum":[9007199254740991,9007199254740992,9007199254740993],"maximum":9007199254740992})",
       {"9007199254740991", "9007199254740992"},
       {"9007199254740993"}},
      {R"({"type":"integer","minimum":123456789012345677,"maximum":123456789012345678})",
       {"123456789012345677", "123456789012345678"},
       {"123456789012345676", "123456789012345679"}},
      {R"({"enum":[10000000000000001,10000000000000010],"multipleOf":10})",
       {"10000000000000010"},
       {"10000000000000001"}},
      {R"({"type":"integer","not":{"const":9007199254740993},"minimum":9007199254740992})",
       {"9007199254740992", "9007199254740994"},
       {"9007199254740993"}},
      {R"({"type":"integer","minimum":5,"maximum":18446744073709551616})",
       {"5", "999999999999999999"},
       {"4"}},
  });
  EXPECT_THAT(schema_error(R"({"const":18446744073709551616})"),
              HasSubstr("const: 1.8446744073709552e+19: beyond 2^53 only integers of at most 64 bits"));
  EXPECT_THAT(schema_error(R"({"properties":{"a":{"enum":[1,{"b":[-9223372036854775809]}]}}})"),
              HasSubstr("properties.a: enum: "));
  EXPECT_THAT(schema_error(R"({"not":{"const":1e17}})"), HasSubstr("const: "));
  EXPECT_THAT(schema_error(R"({"type":"number","maximum":9007199254740993.0})"), HasSubstr("maximum: "));
  EXPECT_EQ(schema_error(R"({"type":"number","maximum":1e30,"default":1e30})"), "");
}

/// Each schema is small, and would take hours or gigabytes if it were compiled.
TEST(JsonSchemaBounds, ProductsOfManyPartsAreRefused) {
  const auto many = [](int count, const std::string& item) {
    std::string list = item;
    for (int i = 1; i < count; ++i)
      list += "," + item;
    return list;
  };
  std::string names = R"("n")";
  for (int i = 0; i < 10'000; ++i)
    names += fmt::format(R"(,"n{}")", i);
  const std::string wide_values = R"({"enum":[)" + names + R"(],"anyOf":[)" + many(10'000, "true") + "]}";
  const std::string wide_required =
      R"({"required":[)" + names + R"(],"anyOf":[)" + many(10'000, "true") + "]}";
  const std::string long_pattern =
      R"({"pattern":")" + std::string(20'000, 'a') + R"(","anyOf":[)" + many(10'000, "true") + "]}";
  const std::string alike =
      R"({"oneOf":[)" + many(5'000, R"({"const":{"a":[1,2,3,4,5,6,7,8]}},{"type":"null","maxLength":1})") +
      "]}";
  for (const std::string& schema : {wide_values, wide_required, alike})
    EXPECT_NE(schema_error(schema), "") << schema.substr(0, 40);
  EXPECT_EQ(schema_error(long_pattern), "");  // read once
}

/// Negations of many parts: as small and as costly.
TEST(JsonSchemaBounds, ComplementsOfManyPartsAreRefused) {
  const auto many = [](int count, const auto& item) {
    std::string list;
    for (int i = 0; i < count; ++i)
      list += (i == 0 ? "" : ",") + std::string(item(i));
    return list;
  };
  const std::string values = many(20'000, [](int i) { return fmt::format(R"("v{}")", i); });
  const std::string containers = many(300, [](int i) { return fmt::format(R"({{"a":{},"b":[{}]}})", i, i); });
  std::string negated = R"({"const":1})";
  for (int i = 0; i < 120; ++i)
    negated = R"({"properties":{"a":)" + negated + R"(,"b":{"enum":[1,2,"x"]}}})";
  const std::vector<std::string> refused{
      R"({"allOf":[)" +
          many(60,
               [](int i) {
                 return fmt::format(R"({{"if":{{"required":["a{}"]}},"then":{{"required":["b{}"]}}}})", i, i);
               }) +
          "]}",
      R"({"allOf":[)" +
          many(40,
               [](int i) {
                 return fmt::format(R"({{"oneOf":[{{"required":["a{}"]}},{{"required":["b{}"]}}]}})", i, i);
               }) +
          "]}",
      R"({"oneOf":[)" + many(200, [](int i) { return fmt::format(R"({{"pattern":"^.*{}.{{40}}$"}})", i); }) +
          "]}",
      R"({"type":"object","not":{"enum":[)" + containers + "]}}",
      R"({"enum":[)" + values + R"(],"allOf":[)" +
          many(20'000, [](int i) { return fmt::format(R"({{"not":{{"const":{}}}}})", i); }) + "]}",
      R"({"type":"number","not":{"enum":[)" + many(50'000, [](int i) { return std::to_string(i * 7); }) +
          "]}}",
      R"({"type":"array","not":{"prefixItems":[)" + many(20'000, [](int) { return "{}"; }) + "]}}",
  };
  for (const std::string& schema : refused)
    EXPECT_NE(schema_error(schema), "") << schema.substr(0, 80);
  EXPECT_EQ(schema_error(R"({"not":{"enum":[)" + values + "]}}"), "");
  schema_error(R"({"not":)" + negated + "}");  // either will do, in time
}

TEST(JsonSchemaBounds, ManyPropertiesValuesAndReferences) {
  const auto listed_names = [](int begin, int end, std::string_view format) {
    std::string list;
    for (int i = begin; i < end; ++i)
      list += (i == begin ? "" : ",") + fmt::format(fmt::runtime(format), i);
    return list;
  };
  const std::string properties = listed_names(0, 1'000, R"("p{}":{{"type":"string"}})");
  const GrammarTexts wide =
      texts_of(R"({"type":"object","additionalProperties":false,"properties":{)" + properties +
                   R"(},"required":[)" + listed_names(400, 1'000, R"("p{}")") + "]}",
               JsonStyle::free);
  const std::string required = listed_names(400, 1'000, R"("p{}": "x")");
  EXPECT_TRUE(wide.accepts("{" + required + "}"));
  EXPECT_TRUE(wide.accepts(R"({"p3": "a", "p33": "a",)" + required + "}"));
  EXPECT_FALSE(wide.accepts(R"({"p33": "a", "p3": "b",)" + required + "}"));
  EXPECT_FALSE(wide.accepts(R"({"p3": "a", "p33": "b"})"));
  const std::string values = listed_names(0, 100'000, R"("value_{}")");
  const GrammarTexts listed = texts_of(R"({"enum":[)" + values + "]}", JsonStyle::compact);
  EXPECT_TRUE(listed.accepts("\"value_77777\""));
  EXPECT_FALSE(listed.accepts("\"value_100000\""));
}

}  // namespace
}  // namespace minfer::test
