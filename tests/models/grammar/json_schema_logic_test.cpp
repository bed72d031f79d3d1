// Schemas that say what a value is not: "not", "if", "oneOf" of which several may hold, "uniqueItems".
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/grammar/schema_texts.h"

namespace minfer::test {
namespace {

using ::testing::HasSubstr;

TEST(JsonSchemaLogic, ComplementsOfTypesAndRequiredMembers) {
  expect_cases({
      {R"({"not":{"type":"string","description":"d"}})", {"1", "null", "{}"}, {"\"a\""}},
      {R"({"not":{"type":["number","integer","object","array"]}})",
       {"\"a\"", "true", "null"},
       {"1", "1.5", "{}", "[]"}},
      {R"({"type":"array","items":{"not":{}}})", {"[]"}, {"[1]", "[null]"}},
      {R"({"type":"integer","not":false})", {"1"}, {"\"a\""}},
      {R"({"type":"object","not":{"required":["a"]}})", {"{}", R"({"b":1})"}, {R"({"a":1})"}},
      {R"({"not":{"required":["a","b"]}})",
       {"{}", R"({"b":1})", R"({"a":1})"},
       {R"({"a":1,"b":2})", "1", "[]"}},
      {R"({"type":["object","null"],"not":{"type":"object","required":["a","b"]}})",
       {"null", R"({"b":1})"},
       {R"({"a":1,"b":2})", "1"}},
      {R"({"type":"object","not":{"anyOf":[{"required":["a"]},{"required":["b"]}]}})",
       {"{}", R"({"c":1})"},
       {R"({"a":1})", R"({"b":1})"}},
      {R"({"type":"object","not":{"allOf":[{"required":["a"]},{"required":["b"]}]}})",
       {"{}", R"({"a":1})", R"({"b":1})"},
       {R"({"a":1,"b":2})"}},
      {R"({"oneOf":[{"required":["a"],"not":{"required":["b"]}},{"required":["b"],"not":{"required":["a"]}}],"type":"object",
           "properties":{"a":{"const":1},"b":{"const":2}},"additionalProperties":false})",
       {R"({"a":1})", R"({"b":2})"},
       {"{}", R"({"a":1,"b":2})"}},
  });
}

TEST(JsonSchemaLogic, ComplementsOfValues) {
  expect_cases({
      {R"({"not":{"const":1}})",
       {"2", "0.5", "\"1\"", "true", "null", "[1]", "1.5"},
       {"1", "1.0", "1e0", "10e-1", "1.00"}},
      {R"({"type":"integer","not":{"enum":[1,2.0,"a"]}})", {"0", "3", "-1", "12"}, {"1", "2"}},
      {R"({"type":"string","not":{"enum":["a","\n",""]}})",
       {R"("b")", R"("aa")"},
       {R"("a")", R"("\n")", R"("")", R"("\u0061")"}},
      {R"({"enum":["a","b",1,null,true],"not":{"enum":["b",null,1.0]}})",
       {R"("a")", "true"},
       {R"("b")", "1", "null"}},
      {R"({"type":"boolean","not":{"const":true}})", {"false"}, {"true"}},
      {R"({"not":{"const":[1,{"a":2}]}})",
       {"[]", "[1]", R"([1,{"a":3}])", R"([1,{"a":2},3])", R"([2,{"a":2}])", "{}", R"([1,{}])"},
       {R"([1,{"a":2}])", R"([1.0,{"a":2}])"}},
      {R"({"not":{"const":{"a":1,"b":2}}})",
       {"{}", R"({"a":1})", R"({"a":1,"b":3})", R"({"a":1,"b":2,"c":0})", "[]"},
       {R"({"a":1,"b":2})", R"({"a":1,"a":1,"b":2})"}},
      {R"({"not":{"enum":[{},[]]}})", {R"({"a":1})", "[1]", "1"}, {"{}", "[]"}},
      {R"({"type":"number","not":{"type":"integer"}})",
       {"0.5", "1.25"},
       {"1", "1.0", "1e0", "10.00", "1.0000000000000001"}},
      {R"({"type":"number","not":{"const":1}})",
       {"1.5", "2"},
       {"1.0000000000000001"}},  // the same double as 1
      {R"({"not":{"type":"integer","nullable":true}})", {"1.5", "\"a\""}, {"1", "null"}},
  });
}

TEST(JsonSchemaLogic, ComplementsOfLimitsAndPatterns) {
  expect_cases({
      {R"({"type":"string","not":{"pattern":"^a"}})", {R"("b")", R"("")", R"("ba")"}, {R"("a")", R"("ab")"}},
      {R"({"type":"string","pattern":"^[ab]+$","not":{"anyOf":[{"pattern":"aa"},{"minLength":4}]}})",
       {R"("a")", R"("aba")", R"("bbb")"},
       {R"("aab")", R"("abab")", R"("")"}},
      {R"({"not":{"minLength":2}})", {R"("")", R"("a")"}, {R"("ab")", "1", "null"}},
      {R"({"not":{"maxLength":1}})", {R"("ab")"}, {R"("a")", "[]"}},
      {R"({"not":{"minimum":3}})", {"2.5", "-1"}, {"3", "4", "\"a\""}},
      {R"({"not":{"exclusiveMaximum":3}})", {"3", "4"}, {"2", "null"}},
      {R"({"type":"integer","not":{"minimum":3,"maximum":5}})", {"2", "6"}, {"3", "4", "5"}},
      {R"({"not":{"minItems":2}})", {"[]", "[1]"}, {"[1,2]", "{}"}},
      {R"({"not":{"maxProperties":0}})", {R"({"a":1})"}, {"{}", "[]"}},
      {R"({"not":{"$ref":"#/$defs/short"},"$defs":{"short":{"type":"string","maxLength":2}}})",
       {R"("abc")", "1"},
       {R"("ab")", R"("")"}},
      {R"({"not":{"not":{"type":"string","minLength":2}}})", {R"("ab")"}, {R"("a")", "1"}},
  });
}

TEST(JsonSchemaLogic, ComplementsOfContainers) {
  expect_cases({
      {R"({"type":"object","properties":{"a":{},"b":{}},"not":{"properties":{"a":{"const":1},"b":{"type":"null"}}}})",
       {R"({"a":2})", R"({"a":1,"b":1})", R"({"b":1})"},
       {"{}", R"({"a":1})", R"({"b":null})", R"({"a":1,"b":null})", R"({"c":1})"}},
      {R"({"not":{"prefixItems":[{"const":1},{"const":2}]}})",
       {"[2]", "[1,3]", "[3,2,1]"},
       {"[]", "[1]", "[1,2]", "[1,2,3]", "1"}},
      {R"({"type":"object","properties":{"a":{},"b":{}},"not":{"dependentRequired":{"a":["b"]}}})",
       {R"({"a":1})", R"({"a":1,"c":1})"},
       {"{}", R"({"b":1})", R"({"a":1,"b":1})"}},
      {R"({"not":{"oneOf":[{"type":"string"},{"maxLength":1},{"const":1}]}})",
       {R"("a")", "1"},
       {R"("ab")", "2"}},
      {R"({"not":{"if":{"type":"string"},"then":{"maxLength":1},"else":{"type":"null"}}})",
       {R"("ab")", "1"},
       {R"("a")", "null"}},
      // As deep as the value: a list of tens within each other is refused.
      {R"({"type":"array","items":{"$ref":"#"},"not":{"$ref":"#/$defs/tens"},"$defs":{"tens":{"prefixItems":[{"$ref":"#/$defs/tens"}],"minItems":1}}})",
       {"[]", "[[]]", "[[],[]]"},
       {"1", "[1]"}},
  });
}

constexpr std::string_view kShape =
    R"({"type":"object","properties":{"kind":{"enum":["circle","square","none"]},"radius":{"type":"number"},"side":{"type":"number"}},
        "required":["kind"],"additionalProperties":false,)";

TEST(JsonSchemaLogic, Conditions) {
  const std::string shape(kShape);
  const std::string chosen =
      shape +
      R"("if":{"properties":{"kind":{"const":"circle"}},"required":["kind"]},"then":{"required":["radius"]},"else":{"properties":{"radius":false}}})";
  const std::string listed =
      shape + R"("allOf":[{"if":{"properties":{"kind":{"const":"circle"}}},"then":{"required":["radius"]}},
      {"if":{"properties":{"kind":{"const":"square"}}},"then":{"required":["side"]}},{"if":{"properties":{"kind":{"const":"none"}}},"then":{"maxProperties":1}}]})";
  expect_cases({
      {chosen,
       {R"({"kind":"circle","radius":1})", R"({"kind":"square","side":2})", R"({"kind":"none"})"},
       {R"({"kind":"circle"})", R"({"kind":"square","radius":1})", "{}"}},
      {listed,
       {R"({"kind":"circle","radius":1})", R"({"kind":"square","side":2})", R"({"kind":"none"})",
        R"({"kind":"circle","radius":1,"side":1})"},
       {R"({"kind":"circle"})", R"({"kind":"square","radius":1})", R"({"kind":"none","side":1})"}},
      {R"({"type":"integer","if":{"minimum":10},"then":{"multipleOf":5}})", {"3", "10", "15"}, {"11"}},
      {R"({"if":{"type":"string"},"else":{"type":"null"}})", {R"("a")", "null"}, {"1", "{}"}},
      {R"({"type":"null","if":{"contains":{}}})", {"null"}, {"1"}},
      {R"({"type":"null","then":false,"else":{"type":"string"}})", {"null"}, {}},
      {R"({"if":true,"then":{"type":"string"},"else":false})", {R"("a")"}, {"1"}},
      {R"({"if":{"properties":{"a":{"const":1}}},"then":{"required":["b"]},"type":"object","properties":{"a":{},"b":{}}})",
       {R"({"a":2})", R"({"b":1})", R"({"a":1,"b":1})"},
       {"{}", R"({"a":1})"}},
  });
}

/// One condition for each value, no two of which can hold at once: as many alternatives as values, not 2 to their power.
TEST(JsonSchemaLogic, ManyConditionsOnOneMember) {
  std::string values, conditions;
  for (int i = 0; i < 40; ++i) {
    values += fmt::format(R"({}"k{}")", i == 0 ? "" : ",", i);
    conditions += fmt::format(
        R"({}{{"if":{{"properties":{{"kind":{{"const":"k{}"}}}},"required":["kind"]}},"then":{{"required":["x{}"]}}}})",
        i == 0 ? "" : ",", i, i);
  }
  const GrammarTexts texts = texts_of(R"({"type":"object","properties":{"kind":{"enum":[)" + values +
                                          R"(]}},"required":["kind"],"allOf":[)" + conditions + "]}",
                                      JsonStyle::compact);
  EXPECT_TRUE(texts.accepts(R"({"kind":"k7","x7":1})"));
  EXPECT_FALSE(texts.accepts(R"({"kind":"k7","x8":1})"));
}

TEST(JsonSchemaLogic, OneOfSeveralThatMayHold) {
  expect_cases({
      {R"({"oneOf":[{"type":"integer"},{"type":"number","minimum":2}]})",
       {"1", "2.5"},
       {"2", "3", "1.5", "\"a\""}},
      {R"({"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"b$"},{"type":"null"}]})",
       {R"("a")", R"("b")", R"("ac")", "null"},
       {R"("ab")", R"("")", R"("c")"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"additionalProperties":false,
           "oneOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":2})"},
       {"{}", R"({"a":1,"b":2})"}},
      {R"({"oneOf":[{"const":1},{"enum":[1,2]},{"enum":[2,3]}]})", {"3"}, {"1", "2", "4"}},
      {R"({"oneOf":[true,{"type":"string"}]})", {"1", "null"}, {R"("a")"}},
      {R"({"oneOf":[{"oneOf":[{"minimum":1},{"minimum":2}]},{"type":"null"},{"maxLength":1}],"type":["integer","null"]})",
       {"2", "0"},
       {"1", "null"}},
      {R"({"type":"integer","oneOf":[{"oneOf":[{"minimum":1},{"minimum":2}]},{"minimum":5}]})",
       {"1", "5", "9"},
       {"2", "4", "0"}},
  });
}

TEST(JsonSchemaLogic, DifferentItems) {
  expect_cases({
      {R"({"items":{"enum":["a","b",1,1.0,{"x":1}]},"uniqueItems":true})",
       {"[]", R"(["a"])", R"(["b","a",{"x":1},1])", "{}"},
       {R"(["a","a"])", "[1,1]", R"(["b",1,"b"])", R"(["c"])", R"([{"x":1},{"x":1}])"}},
      {R"({"type":"array","items":{"type":["boolean","null"]},"uniqueItems":true,"minItems":2})",
       {"[true,false]", "[null,true]", "[false,null,true]"},
       {"[true]", "[true,true]", "[]", "[true,false,null,null]"}},
      {R"({"type":"array","prefixItems":[{"const":"a"}],"items":{"enum":["a","b","c"]},"maxItems":3,"uniqueItems":true})",
       {"[]", R"(["a","c","b"])"},
       {R"(["b"])", R"(["a","a"])", R"(["a","b","b"])"}},
      {R"({"type":"array","items":{"type":"string"},"uniqueItems":true,"maxItems":1})",
       {"[]", R"(["x"])"},
       {R"(["x","y"])"}},
      {R"({"enum":[[1,2],[1,1.0],["a"]],"uniqueItems":true})", {"[1,2]", R"(["a"])"}, {"[1,1.0]", "[1,1]"}},
      {R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":3})",
       {R"(["c","a","b"])"},
       {R"(["c","a"])"}},
  });
  EXPECT_THAT(schema_error(R"({"type":"array","items":{"enum":[1,2]},"uniqueItems":true,"minItems":3})"),
              HasSubstr("no text at all"));
  std::string values = "0";
  for (int i = 1; i < 60; ++i)
    values += fmt::format(",{}", i);
  const GrammarTexts two =
      texts_of(R"({"type":"array","items":{"enum":[)" + values + R"(]},"uniqueItems":true,"maxItems":2})",
               JsonStyle::compact);
  EXPECT_TRUE(two.accepts("[59,58]"));
  EXPECT_FALSE(two.accepts("[58,58]"));
}

}  // namespace
}  // namespace minfer::test
