#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/models/grammar/schema_texts.h"

namespace minfer::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JsonSchema, TypesAndValues) {
  expect_cases({
      {"true", {"null", "1", "\"a\"", "[1,{\"a\":[]}]", "{}"}, {"", "nul", "[1,]", "{a:1}"}},
      {R"({"type":"null"})", {"null"}, {"true"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"null", "0"}},
      {R"({"type":["string","null"]})", {"null", "\"a\""}, {"1"}},
      {R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"}},
      {R"({"type":"object"})", {"{}", R"({"a":1,"b":{}})"}, {"[]"}},
      {R"({"type":"array"})", {"[]", R"([1,"a",[]])"}, {"{}"}},
      {R"({"enum":["a",1,null,{"x":[1,2]},1.5,"\"\n"]})",
       {"\"a\"", "1", "null", R"({"x":[1,2]})", "1.5", R"("\"\n")"},
       {"\"b\"", "2", "{}"}},
      {R"({"const":"x"})", {"\"x\""}, {"\"y\"", "x"}},
      {R"({"enum":[1,2,"a","bb",3.5],"type":["integer","string"],"minimum":2,"maxLength":1})",
       {"2", "\"a\""},
       {"1", "\"bb\"", "3.5"}},
      {R"({"enum":["ab","b"],"pattern":"^a"})", {"\"ab\""}, {"\"b\""}},
      {R"({"enum":[1,2,{"a":1,"b":2}],"allOf":[{"enum":[2.0,3,{"b":2,"a":1}]}]})",
       {"2.0", R"({"b":2,"a":1})"},
       {"1", "3"}},
  });
}

TEST(JsonSchema, Strings) {
  expect_cases({
      {R"({"type":"string"})",
       {R"("")", R"("a\"\\\/\b\f\n\r\t")", "\"\u00e9\U0001f600\"", R"("\u00e9\ud83d\ude00\uD7FF\uE000")"},
       {R"("\ud83d")", R"("\ude00\ud83d")", R"("\ud83dx")", "\"\n\"", R"("\x")", "\"\xff\"", "\"", "'a'"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("\n\u0041b")", "\"\U0001f600\u00e9\"", R"("\ud83d\ude00bc")"},
       {R"("a")", R"("abcd")", "\"\U0001f600\"", R"("\ud83d\ude00")"}},
      {R"({"type":"string","pattern":"b+"})", {R"("abc")", R"("b")", R"("\nb\"")"}, {R"("ac")", R"("")"}},
      {R"({"type":"string","pattern":"^[a-z\\n\"]{2,}$","maxLength":3})",
       {R"("ab")", R"("a\n\"")"},
       {R"("a")", R"("abcd")", R"("aB")"}},
      {R"({"type":"string","allOf":[{"pattern":"^a"},{"pattern":"z$"}]})",
       {R"("az")", R"("abz")"},
       {R"("a")", R"("z")"}},
      {R"({"type":"string","maxLength":0})", {R"("")"}, {R"("a")"}},
  });
}

TEST(JsonSchema, Formats) {
  expect_cases({
      {R"({"type":"string","format":"date"})",
       {R"("2024-02-29")", R"("2000-02-29")", R"("1999-12-31")"},
       {R"("2023-02-29")", R"("1900-02-29")", R"("2024-13-01")", R"("2024-04-31")", R"("0000-01-01")"}},
      {R"({"type":"string","format":"time"})",
       {R"("23:59:59Z")", R"("00:00:00.123+05:30")"},
       {R"("24:00:00Z")", R"("12:00:00")"}},
      {R"({"type":"string","format":"date-time"})",
       {R"("2024-02-29T12:00:00Z")"},
       {R"("2024-02-29 12:00:00Z")", R"("2024-02-29")"}},
      {R"({"type":"string","format":"duration"})",
       {R"("P1Y2M3DT4H5M6S")", R"("P2W")", R"("PT36H")"},
       {R"("P")", R"("PT")", R"("P1S")", R"("P1Y2D")"}},
      {R"({"type":"string","format":"uuid"})",
       {R"("123e4567-e89b-12d3-a456-426614174000")"},
       {R"("123e4567e89b12d3a456426614174000")"}},
      {R"({"type":"string","format":"email"})",
       {R"("a.b+c@example.co.uk")"},
       {R"("a@b")", R"("a..b@example.com")", R"("@x.y")"}},
      {R"({"type":"string","format":"hostname"})",
       {R"("localhost")", R"("a-b.example.com")"},
       {R"("-a")", R"("a..b")", R"("a_b")"}},
      {R"({"type":"string","format":"ipv4"})",
       {R"("192.168.0.255")"},
       {R"("256.1.1.1")", R"("1.2.3")", R"("01.2.3.4")"}},
      {R"({"type":"string","format":"ipv6"})",
       {R"("::")", R"("::1")", R"("fe80::1:2")", R"("1:2:3:4:5:6:7:8")", R"("::ffff:1.2.3.4")"},
       {R"("1::2::3")", R"("1:2:3:4:5:6:7")", R"("1:2:3:4:5:6:7:8:9")", R"(":1")"}},
      {R"({"type":"string","format":"uri"})",
       {R"("https://example.com:80/a/b?q=1#f")", R"("mailto:a@b.c")"},
       {R"("/a")", R"("http://a b")"}},
      {R"({"type":"string","format":"date","pattern":"^2024"})", {R"("2024-01-01")"}, {R"("2023-01-01")"}},
  });
}

TEST(JsonSchema, Numbers) {
  expect_cases({
      {R"({"type":"integer"})",
       {"0", "-1", "123456789012345678"},
       {"-0", "01", "1.5", "1e3", "1234567890123456789", "+1", "-"}},
      {R"({"type":"number"})", {"0", "-0.5", "1.25e-3", "1E+99"}, {".5", "1.", "1e100", "00", "-"}},
      {R"({"type":"integer","minimum":-5,"maximum":120})",
       {"-5", "-1", "0", "9", "99", "120"},
       {"-6", "121", "-0", "05", "1000"}},
      {R"({"type":"integer","exclusiveMinimum":-5,"exclusiveMaximum":10})", {"-4", "9"}, {"-5", "10"}},
      {R"({"type":"integer","minimum":0.5,"maximum":3.9})", {"1", "3"}, {"0", "4"}},
      {R"({"type":"integer","minimum":1234})",
       {"1234", "9999", "10000", "123456789012345678"},
       {"1233", "999", "-1234"}},
      {R"({"type":"integer","maximum":-10})", {"-10", "-99", "-100"}, {"-9", "0", "10"}},
      {R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
       {"9007199254740991", "-9007199254740991", "0"},
       {"9007199254740992", "-9007199254740992"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "0.0", "0.5", "1", "1.00"},
       {"-0.1", "1.01", "2", "1e0"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
       {"0.001", "0.99"},
       {"0", "0.0", "1", "1.0"}},
      {R"({"type":"number","minimum":-2.5,"maximum":-0.25})",
       {"-2.5", "-1", "-0.25", "-0.250"},
       {"-2.51", "-0.2", "0", "-3"}},
      {R"({"type":"number","minimum":1.5,"exclusiveMaximum":1.75})",
       {"1.5", "1.749", "1.60"},
       {"1.75", "1.750", "1.49", "1", "2"}},
      {R"({"type":"number","minimum":1e-20,"maximum":1e300})",
       {"0.0000000000000001", "999999999999999999"},
       {"0", "-1"}},
      {R"({"type":"number","allOf":[{"minimum":1},{"exclusiveMinimum":1},{"minimum":0}],"maximum":2})",
       {"1.1", "2"},
       {"1", "0"}},
      {R"({"type":"integer","multipleOf":5})", {"0", "5", "-10", "125"}, {"1", "51"}},
      {R"({"type":"integer","multipleOf":60,"minimum":60,"maximum":600})",
       {"60", "120", "600"},
       {"0", "90", "660", "100"}},
      {R"({"type":"number","multipleOf":7})", {"0", "49", "-14"}, {"1", "7.0", "48"}},
      {R"({"type":"integer","multipleOf":9,"minimum":0})", {"0", "81", "123456789"}, {"1", "82"}},
      {R"({"type":"integer","format":"int32"})", {"2147483647", "-2147483648"}, {"2147483648"}},
      {R"({"type":"number","format":"double"})", {"2147483648.5"}, {}},
      {R"({"type":"number","multipleOf":0.01,"minimum":0})", {"0", "19.99", "5.5"}, {"0.001", "-1"}},
  });
}

TEST(JsonSchema, Arrays) {
  expect_cases({
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1,2,3]"},
       {"[\"a\"]", "[1,]", "[,1]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1,2,3]"},
       {"[1]", "[1,2,3,4]", "[]"}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
       {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null]"},
       {"[\"a\"]", "[1,2]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":1})",
       {"[1]", "[1,\"a\"]"},
       {"[]", "[1,\"a\",2]"}},
      {R"({"type":"array","prefixItems":[{"const":1},{"const":2},{"const":3}],"items":{"const":4},"minItems":2,"maxItems":4})",
       {"[1,2]", "[1,2,3]", "[1,2,3,4]"},
       {"[1]", "[1,2,3,4,4]", "[1,3]"}},
      {R"({"type":"array","prefixItems":[{"const":1}],"minItems":3,"items":{"const":2}})",
       {"[1,2,2]", "[1,2,2,2]"},
       {"[1,2]"}},
      {R"({"type":"array","prefixItems":[true,false]})", {"[]", "[1]"}, {"[1,2]"}},
      {R"({"type":"array","items":[{"const":1},{"const":2}]})",
       {"[]", "[1]", "[1,2]", "[1,2,\"a\"]"},
       {"[2]", "[1,1]"}},
      {R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2},"minItems":2})",
       {"[1,2]", "[1,2,2]"},
       {"[1]", "[1,1]", "[2,2]"}},
      {R"({"type":"array","additionalItems":false,"items":[{"const":1}]})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"type":"array","items":{"const":1},"additionalItems":false})", {"[]", "[1]", "[1,1]"}, {"[2]"}},
      {R"({"type":"array","additionalItems":false})", {"[]", "[1,true]"}, {}},
      {R"({"type":"array","prefixItems":[{"const":1}],"unevaluatedItems":false})", {"[]", "[1]"}, {"[1,1]"}},
      {R"({"type":"array","allOf":[{"items":{"minimum":1}},{"items":{"type":"integer","maximum":3}}]})",
       {"[1,3]"},
       {"[0]", "[4]"}},
  });
}

TEST(JsonSchema, Objects) {
  expect_cases({
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string"}},"required":["a"],"additionalProperties":false})",
       {R"({"a":1})", R"({"a":1,"b":"x"})"},
       {"{}", R"({"b":"x"})", R"({"b":"x","a":1})", R"({"a":1,"c":2})", R"({"a":1,})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3},"d":{"const":4}},"additionalProperties":false})",
       {"{}", R"({"a":1})", R"({"d":4})", R"({"b":2,"d":4})", R"({"a":1,"b":2,"c":3,"d":4})",
        R"({"c":3,"d":4})"},
       {R"({"b":2,"a":1})", R"({"a":1,"a":1})", R"({,"a":1})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["b"],"additionalProperties":false})",
       {R"({"b":2})", R"({"a":1,"b":2})", R"({"b":2,"c":3})"},
       {R"({"a":1,"c":3})", "{}"}},
      {R"({"type":"object","properties":{"a":{"const":1}}})",
       {"{}", R"({"a":1})", R"({"a":1,"x":[]})", R"({"x":2,"\"":3})", R"({"":0})"},
       {R"({"a":2})", R"({"x":1,"a":1})", R"({"\u0061":2})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":1,"b":2})"},
       {R"({"a":"x"})"}},
      {R"({"type":"object","properties":{"a":true},"required":["z","a"],"additionalProperties":{"type":"integer"}})",
       {R"({"a":null,"z":1})", R"({"a":null,"z":1,"b":2})"},
       {R"({"a":1})", R"({"a":1,"z":"x"})"}},
      {R"({"type":"object","additionalProperties":{"const":0},"minProperties":1,"maxProperties":2})",
       {R"({"a":0})", R"({"a":0,"b":0})"},
       {"{}", R"({"a":0,"b":0,"c":0})"}},
      {R"({"type":"object","properties":{"a":{"const":0},"b":{"const":0},"c":{"const":0}},"additionalProperties":false,"minProperties":2})",
       {R"({"a":0,"b":0})", R"({"b":0,"c":0})", R"({"a":0,"b":0,"c":0})"},
       {"{}", R"({"a":0})", R"({"c":0})"}},
      {R"({"type":"object","properties":{"a":{"const":0},"b":{"const":0}},"required":["b"],"additionalProperties":{"const":1},"minProperties":2,"maxProperties":3})",
       {R"({"a":0,"b":0})", R"({"b":0,"x":1})", R"({"a":0,"b":0,"x":1})", R"({"b":0,"x":1,"y":1})"},
       {R"({"b":0})", R"({"a":0,"x":1})", R"({"a":0,"b":0,"x":1,"y":1})"}},
      {R"({"type":"object","properties":{"a":{"const":0}},"additionalProperties":false,"minProperties":1})",
       {R"({"a":0})"},
       {"{}"}},
      {R"({"type":"object","properties":{"a":false,"b":{"const":1}},"additionalProperties":false})",
       {"{}", R"({"b":1})"},
       {R"({"a":1})"}},
      {R"({"type":"object","patternProperties":{"^s_":{"type":"string"},"_n$":{"minLength":2}},"properties":{"s_a":{"maxLength":3}},"additionalProperties":{"type":"integer"}})",
       {R"({"s_a":"xyz","s_b":"","s_n":"xy","a_n":3,"c":1})"},
       {R"({"s_a":1})", R"({"s_b":1})", R"({"s_n":"x"})", R"({"c":"x"})", R"({"a_n":"x"})"}},
      {R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$","maxLength":2},"additionalProperties":{"const":1}})",
       {"{}", R"({"ab":1})"},
       {R"({"abc":1})", R"({"A":1})"}},
      {R"({"type":"object","properties":{"a":{"const":1}},"unevaluatedProperties":false})",
       {"{}", R"({"a":1})"},
       {R"({"b":1})"}},
      {R"({"properties":{"a":{"const":1}}})", {"null", "[1]", R"({"a":1})"}, {R"({"a":2})"}},
  });
}

TEST(JsonSchema, Combinations) {
  expect_cases({
      {R"({"anyOf":[{"type":"integer"},{"type":"string"}]})", {"1", "\"a\""}, {"null"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2}},"additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":1})", R"({"b":2})", R"({"a":1,"b":2})"},
       {"{}"}},
      {R"({"oneOf":[{"type":"object","properties":{"kind":{"const":"a"},"x":{"type":"integer"}},"required":["kind"],"additionalProperties":false},
                    {"type":"object","properties":{"kind":{"enum":["b","c"]},"y":{"type":"string"}},"required":["kind"],"additionalProperties":false}]})",
       {R"({"kind":"a","x":1})", R"({"kind":"c","y":"s"})"},
       {R"({"kind":"a","y":"s"})", R"({"x":1})"}},
      {R"({"oneOf":[{"type":"integer","maximum":3},{"type":"integer","exclusiveMinimum":3}]})",
       {"3", "4"},
       {}},
      {R"({"oneOf":[{"type":"null"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"type":"string"}}})",
       {"null", "\"x\""},
       {"1"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"const":2},"a":{"minimum":3}},"required":["b"]}]})",
       {R"({"a":3,"b":2})"},
       {R"({"a":2,"b":2})", R"({"a":3})"}},
      {R"({"$ref":"#/$defs/n","maximum":5,"$defs":{"n":{"type":"integer","minimum":3}}})",
       {"3", "5"},
       {"2", "6"}},
      {R"({"allOf":[{"additionalProperties":false,"properties":{"a":true}},{"required":["a"]}],"type":"object"})",
       {R"({"a":1})"},
       {"{}", R"({"b":1})"}},
      {R"({"anyOf":[{"type":"string"},{"type":"string","maxLength":1}],"allOf":[{"anyOf":[{"minLength":1},{"type":"null"}]}]})",
       {"\"a\"", "\"ab\""},
       {"\"\"", "null"}},
  });
}

TEST(JsonSchema, MembersThatBringOthersAlong) {
  for (const std::string word : {"dependentRequired", "dependencies"}) {
    expect_cases(
        {{R"({"type":"object","properties":{"a":true,"b":true,"c":true},"additionalProperties":false,")" +
              word + R"(":{"a":["b"],"b":["c"],"c":[]}})",
          {"{}", R"({"c":1})", R"({"b":1,"c":2})", R"({"a":1,"b":2,"c":3})"},
          {R"({"a":1})", R"({"a":1,"b":2})", R"({"b":1})", R"({"a":1,"c":3})"}},
         {"{\"" + word + R"(":{"a":["b"]}})", {"1", "[]", R"({"x":1})", R"({"a":1,"b":2})"}, {R"({"a":1})"}},
         {R"({"required":["a"],")" + word + R"(":{"a":["b"]},"type":"object"})",
          {R"({"a":1,"b":2})"},
          {"{}", R"({"b":2})"}}});
  }
  for (const std::string word : {"dependentSchemas", "dependencies"}) {
    expect_cases(
        {{R"({"type":"object","properties":{"a":true},"unevaluatedProperties":false,")" + word +
              R"(":{"a":{"properties":{"b":{"type":"integer"}}}}})",
          {"{}", R"({"a":1})", R"({"a":1,"b":2})"},
          {R"({"b":2})", R"({"a":1,"b":"c"})", R"({"a":1,"c":2})"}},
         {R"({"type":"object","additionalProperties":{"type":"integer"},")" + word + R"(":{"a":false}})",
          {"{}", R"({"b":2})"},
          {R"({"a":1})"}},
         {"{\"" + word + R"(":{"next":{"properties":{"next":{"$ref":"#"}}}}})",
          {R"({"next":{"next":{}}})", "1"},
          {}}});
  }
}

TEST(JsonSchema, ListedContainersAreThoseThatAreValid) {
  expect_cases({
      {R"({"enum":[[1],[1,2],["a"],{}],"items":{"type":"integer"},"minItems":2})",
       {"[1,2]", "{}"},
       {"[1]", "[\"a\"]"}},
      {R"({"enum":[[1],[1,2]],"prefixItems":[true],"unevaluatedItems":false})", {"[1]"}, {"[1,2]"}},
      {R"({"enum":[{"a":1},{"a":"x"},{"b":1},{"a":2,"b":[]}],"type":"object","properties":{"a":{"minimum":1,"type":"integer"}},"required":["a"],"maxProperties":1})",
       {R"({"a":1})"},
       {R"({"a":"x"})", R"({"b":1})", R"({"a":2,"b":[]})"}},
      {R"({"enum":[{"a":"x"},{"a":"y"},{"b":"y"}],"propertyNames":{"pattern":"^a"},"properties":{"a":{"pattern":"^x"}}})",
       {R"({"a":"x"})"},
       {R"({"a":"y"})", R"({"b":"y"})"}},
      {R"({"enum":[{"a":1},{"b":1}],"properties":{"a":{"anyOf":[{"type":"null"},{"enum":[1.0]}]}},"unevaluatedProperties":false})",
       {R"({"a":1})"},
       {R"({"b":1})"}},
  });
}

TEST(JsonSchema, References) {
  expect_cases({
      {R"({"$ref":"#/$defs/tree","$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},"c":{"type":"array","items":{"$ref":"#/$defs/tree"}}},"required":["v"],"additionalProperties":false}}})",
       {R"({"v":1})", R"({"v":1,"c":[{"v":2,"c":[]},{"v":3}]})"},
       {R"({"v":1,"c":[{}]})"}},
      {R"({"type":"object","properties":{"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["next"],"additionalProperties":false})",
       {R"({"next":null})", R"({"next":{"next":null}})"},
       {"{}", R"({"next":{}})"}},
      {R"({"$ref":"#/definitions/a~1b%20c~0","definitions":{"a/b c~":{"const":1}}})", {"1"}, {"2"}},
      {R"({"$ref":"#there","$defs":{"x":{"$anchor":"there","const":1}}})", {"1"}, {"2"}},
      {R"({"$ref":"#/prefixItems/1","prefixItems":[true,{"const":1}]})", {"1"}, {"[1]"}},
  });
}

TEST(JsonSchema, FreeStyleHasBoundedWhiteSpace) {
  const GrammarTexts texts = texts_of(
      R"({"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}},"b":{"const":{"c":[1,2]}}},"required":["a","b"],"additionalProperties":false})",
      JsonStyle::free);
  EXPECT_TRUE(texts.accepts(R"({"a":[1,2],"b":{"c":[1,2]}})"));
  EXPECT_TRUE(texts.accepts(R"({"a": [1, 2], "b": {"c": [1, 2]}})"));
  EXPECT_TRUE(texts.accepts("{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {\n    \"c\": [\n1, 2]\n  }\n}"));
  EXPECT_TRUE(texts.accepts(R"({ "a": [ ], "b": { "c": [ 1, 2 ] } })"));
  for (const std::string_view text :
       {R"( {"a":[],"b":{"c":[1,2]}})", R"({"a":[],"b":{"c":[1,2]}} )", R"({"a" :[],"b":{"c":[1,2]}})",
        R"({"a":  [],"b":{"c":[1,2]}})", "{\n\n\"a\":[],\"b\":{\"c\":[1,2]}}"}) {
    EXPECT_FALSE(texts.accepts(text)) << text;
  }
  EXPECT_FALSE(texts.accepts("{\n" + std::string(21, ' ') + R"("a":[],"b":{"c":[1,2]}})"));
}

TEST(JsonSchema, AnyValueAndAnyObject) {
  const GrammarTexts values([](GrammarBuilder& builder) { return add_json_value(builder, JsonStyle::free); });
  const GrammarTexts objects(
      [](GrammarBuilder& builder) { return add_json_object(builder, JsonStyle::compact); });
  for (const std::string_view text : {"{\"a\": [1, {\"b\": null}],\n \"c\": \"\"}", "-1.5e3", "\"x\"", "[]"})
    EXPECT_TRUE(values.accepts(text)) << text;
  EXPECT_TRUE(objects.accepts(R"({"a":[true,{}]})"));
  EXPECT_FALSE(objects.accepts("[]"));
  EXPECT_FALSE(objects.accepts(R"({"a": 1})"));
  std::string deep(500, '[');
  deep += std::string(500, ']');
  EXPECT_TRUE(values.accepts(deep));
}

TEST(JsonSchema, WordsOfNoDraftAreAnnotations) {
  const GrammarTexts texts = texts_of(
      R"({"type":"null","colour":"red","version":2,"_format":"x","x-minLength":3})", JsonStyle::compact);
  EXPECT_TRUE(texts.accepts("null"));
  EXPECT_TRUE(texts_of(R"({"type":"string","format":"password"})", JsonStyle::compact).accepts(R"("x y")"));
  EXPECT_TRUE(texts_of(R"({"type":"string","format":"color"})", JsonStyle::compact).accepts(R"("x y")"));
  EXPECT_TRUE(texts_of(R"({"type":"integer","format":"uint128"})", JsonStyle::compact).accepts("12"));
}

TEST(JsonSchema, RefusesWithThePlace) {
  const std::vector<std::pair<std::string_view, std::string_view>> cases{
      {R"({"properties":{"a":{"contains":{}}}})", "properties.a: contains: not supported"},
      {R"({"anyOf":[{"type":"string"},{"items":{"contains":{}}}]})",
       "anyOf[1].items: contains: not supported"},
      {R"({"requird":["a"]})", "requird: not supported"},
      {R"({"min_length":1})", "min_length: not supported"},
      {R"({"$dynamicRef":"#a"})", "$dynamicRef: not supported"},
      {R"({"type":"strin"})", "type: there is no type strin"},
      {R"({"type":3})", "type: the name of a type"},
      {R"({"uniqueItems":true})", "uniqueItems: true is only supported for items of enum, const or boolean"},
      {R"({"uniqueItems":1})", "uniqueItems: true or false expected, found number"},
      {R"({"items":{"enum":[1,2,3,4,5,6,7,8,9,10,11,12,13]},"uniqueItems":true})",
       "uniqueItems: true is only supported where there are at most 4096 sets of values"},
      {R"({"contains":{}})", "contains: not supported"},
      {R"s({"type":"string","pattern":"(?=a)"})s", "pattern: regular expression, byte"},
      {R"({"type":"integer","multipleOf":11})", "multipleOf: 11 is not supported"},
      {R"({"minimum":"1"})", "minimum: a number expected, found string"},
      {R"({"minLength":-1})", "minLength: a count"},
      {R"({"minLength":1.5})", "minLength: a count"},
      {R"({"type":"integer","minimum":1e30})", "digits are not supported"},
      {R"({"oneOf":[{"format":"date"},{"type":"string"}]})",
       "oneOf: [0] and [1] cannot be shown to exclude each other"},
      {R"({"$ref":"#"})", "$ref: leads back to the same schema"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"allOf":[{"$ref":"#/$defs/a"}]}}})",
       "$ref: leads back"},
      {R"({"anyOf":[{"$ref":"#"},{"type":"null"}]})", "$ref: leads back"},
      {R"({"$ref":"#/$defs/x"})", "$ref: there is no $defs"},
      {R"({"$ref":"#x"})", "there is no $anchor x"},
      {R"({"$ref":"http://example.com/a"})", "only references within the schema"},
      {R"({"properties":{"a":1}})",
       "properties.a: a schema (an object, true or false) expected, found number"},
      {R"({"properties":[]})", "properties: an object of schemas expected"},
      {R"({"items":[{}],"prefixItems":[{}]})", "items: a list beside prefixItems, expected one of them"},
      {R"({"items":[{"contains":{}}]})", "items[0]: contains: not supported"},
      {R"({"properties":{"a":{"$id":"x","type":"string"}}})", "$id: not supported below the root"},
      {R"({"items":{"not":{"format":"date"}}})",
       "items.not: format: not supported where a schema is excluded"},
      {R"({"not":{"multipleOf":2}})", "not: multipleOf: not supported where a schema is excluded"},
      {R"({"not":{"items":{"type":"null"}}})", "not: items: not supported where a schema is excluded"},
      {R"({"not":{"additionalProperties":false}})", "not: additionalProperties: not supported where"},
      {R"({"if":{"uniqueItems":true},"then":{}})", "if: uniqueItems: not supported where"},
      {R"({"not":{"contains":{}}})", "not: contains: not supported"},
      {R"({"not":{"type":"text"}})", "not: type: there is no type text"},
      {R"({"not":{"required":3}})", "not: required: an array of names expected, found number"},
      {R"({"not":7})", "not: a schema (an object, true or false) expected, found number"},
      {R"({"not":{"$ref":"#"}})", "$ref: leads back to the same schema"},
      {R"({"if":true,"then":7})", "then: a schema (an object, true or false) expected, found number"},
      {R"({"anyOf":[]})", "anyOf: an array of schemas"},
      {R"({"dependentRequired":[]})", "dependentRequired: an object expected, found array"},
      {R"({"dependentRequired":{"a":{}}})", "required: an array of names expected, found object"},
      {R"({"dependencies":{"a":"b"}})",
       "dependencies.a: a schema (an object, true or false) expected, found string"},
      {R"({"dependentSchemas":{"a":{"properties":{"b":{"contains":{}}}}}})",
       "dependentSchemas.a.properties.b: contains: not supported"},
      {R"({"allOf":[{"unevaluatedProperties":false}]})", "unevaluatedProperties: not supported in a part"},
      {R"({"not":{"properties":{"a":{"const":1}}},"unevaluatedProperties":false})",
       "unevaluatedProperties: not supported beside a schema that is excluded"},
      {"false", "no text at all"},
      {R"({"type":"object","required":["a"],"properties":{"a":false}})", "no text at all"},
      {R"({"type":"object","required":["a"],"unevaluatedProperties":false})", "no text at all"},
      {R"({"type":"integer","minimum":2,"maximum":1})", "no text at all"},
      {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no text at all"},
  };
  for (const auto& [schema, message] : cases)
    EXPECT_THAT(schema_error(schema), HasSubstr(message)) << schema;
  EXPECT_THAT(schema_error(R"({"items":{"contains":{}}})", "tools[0].parameters"),
              StartsWith("tools[0].parameters.items: contains:"));
}

}  // namespace
}  // namespace minfer::test
