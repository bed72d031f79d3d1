#pragma once

#include <string>
#include <string_view>

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

/// Empty: none. `path`: the place of the schema in a request.
inline std::string schema_error(std::string_view schema, std::string_view path = {}) {
  return grammar_error([&](GrammarBuilder& builder) {
    return add_json_schema(builder, nlohmann::ordered_json::parse(schema), JsonStyle::compact, path);
  });
}

}  // namespace minfer::test
