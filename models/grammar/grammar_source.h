#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/grammar/code_points.h"
#include "models/grammar/grammar.h"

namespace minfer {

/// The layout of JSON, where a schema leaves it open.
enum class JsonStyle : uint8_t {
  free,  ///< white space between tokens, as models often write it; bounded, so that none can go on for ever
  compact,  ///< none
};

// The forms in which clients give grammars. Each function adds its texts to a builder, so they can be parts of others (the arguments of a
// tool call). All throw GrammarError naming the place ("properties.a.pattern") and the unsupported part: only annotations are ignored.

/// A JSON Schema (draft 2020-12); json/README.md lists the supported parts. `path` is put before the places in errors.
GrammarBuilder::Expr add_json_schema(GrammarBuilder& builder, const nlohmann::ordered_json& schema,
                                     JsonStyle style, std::string_view path = {});
/// The unknown values of "format" in a schema; these do not constrain values.
std::vector<std::string> unknown_formats(const nlohmann::ordered_json& schema);
/// Any JSON object; any JSON value.
GrammarBuilder::Expr add_json_object(GrammarBuilder& builder, JsonStyle style);
GrammarBuilder::Expr add_json_value(GrammarBuilder& builder, JsonStyle style);
/// A regular expression that matches the whole text: ECMA-262's syntax without look-around, back references and word boundaries. Anchors at
/// the ends are allowed.
GrammarBuilder::Expr add_regex(GrammarBuilder& builder, std::string_view pattern);
/// GBNF as llama.cpp documents it, from the rule "root" on.
GrammarBuilder::Expr add_gbnf(GrammarBuilder& builder, std::string_view text);
/// A Lark grammar, from the rule "start" on; README.md lists the supported parts. In a JSON string its texts stand between the quotes.
GrammarBuilder::Expr add_lark(GrammarBuilder& builder, std::string_view text,
                              Spelling spelling = Spelling::plain);
/// One of these texts.
GrammarBuilder::Expr add_choices(GrammarBuilder& builder, const std::vector<std::string>& choices);

}  // namespace minfer
