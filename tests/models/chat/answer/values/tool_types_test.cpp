// The types of parameters that a request's tools declare.
#include "models/chat/answer/values/tool_types.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace minfer::answers {
namespace {

using nlohmann::ordered_json;

JsonTypes types_by_schema(const char* schema) {
  const ordered_json parameters = {{"properties", {{"a", ordered_json::parse(schema)}}}};
  const ordered_json tools = {
      {{"type", "function"}, {"function", {{"name", "f"}, {"parameters", parameters}}}}};
  return ToolTypes(&tools).parameter("f", "a");
}

TEST(ToolTypes, AreThoseOfTheSchema) {
  EXPECT_EQ(types_by_schema(R"({"type": "string"})"), kString);
  EXPECT_EQ(types_by_schema(R"({"type": "integer"})"), kNumber);
  EXPECT_EQ(types_by_schema(R"({"type": ["boolean", "null"]})"), kBoolean | kNull);
  EXPECT_EQ(types_by_schema(R"({"enum": ["a", 1, null, true, {}, []]})"),
            kString | kNumber | kNull | kBoolean | kObject | kArray);
  EXPECT_EQ(types_by_schema(R"({"anyOf": [{"type": "array"}, {"type": "object"}]})"), kArray | kObject);
  EXPECT_EQ(types_by_schema(R"({"oneOf": [{"type": "string"}, {"$ref": "#/x"}]})"), kAnyType);
  EXPECT_EQ(types_by_schema(R"({"type": "stranger"})"), kAnyType);
  EXPECT_EQ(types_by_schema("{}"), kAnyType);
  EXPECT_EQ(types_by_schema("true"), kAnyType);
}

TEST(ToolTypes, OfToolsOfAnyShape) {
  for (const char* text :
       {"null", "[]", "{}", "[1]", R"([{"function": 1}])", R"([{"function": {"name": 1}}])",
        R"([{"function": {"name": "f"}}])", R"([{"function": {"name": "f", "parameters": []}}])",
        R"([{"function": {"name": "f", "parameters": {"properties": "a"}}}])",
        R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"anyOf": 1, "enum": {}}}}}}])"}) {
    const ordered_json tools = ordered_json::parse(text);
    EXPECT_EQ(ToolTypes(&tools).parameter("f", "a"), kAnyType) << text;
  }
  EXPECT_FALSE(ToolTypes(nullptr).is_known());
  EXPECT_FALSE(ToolTypes(nullptr).has_function("f"));
}

}  // namespace
}  // namespace minfer::answers
