#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "models/grammar/grammar_source.h"
#include "tests/models/grammar/grammar_texts.h"

namespace minfer::test {

/// The texts that a JSON schema allows.
inline GrammarTexts texts_of(std::string_view schema, JsonStyle style) {
  return GrammarTexts([&](GrammarBuilder& builder) {
    return add_json_schema(builder, nlohmann::ordered_json::parse(schema), style);
  });
}

/// The error of a schema; empty: none. `path`: the schema's place in a request.
inline std::string schema_error(std::string_view schema, std::string_view path = {}) {
  return grammar_error([&](GrammarBuilder& builder) {
    return add_json_schema(builder, nlohmann::ordered_json::parse(schema), JsonStyle::compact, path);
  });
}

struct SchemaCase {
  std::string_view schema;
  std::vector<std::string_view> accepted;
  std::vector<std::string_view> refused;
};

inline void expect_cases(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& test : cases) {
    const GrammarTexts texts = texts_of(test.schema, JsonStyle::compact);
    for (const std::string_view text : test.accepted)
      EXPECT_TRUE(texts.accepts(text)) << test.schema << " should allow " << text;
    for (const std::string_view text : test.refused)
      EXPECT_FALSE(texts.accepts(text)) << test.schema << " should not allow " << text;
  }
}

}  // namespace minfer::test
