#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "models/grammar/grammar.h"
#include "models/grammar/regex/code_points.h"

namespace minfer {

/// How JSON is laid out where a schema leaves it open.
enum class JsonStyle : uint8_t {
  free,  ///< white space between tokens as models like to write it: bounded, so that none can go on for ever
  compact,  ///< none
};

// What clients give grammars as. Each adds to a builder what its texts are, so that they can be parts of others (the arguments of a tool
// call). All throw GrammarError naming the place ("properties.a.pattern") and what cannot be honoured: nothing is ignored but annotations.

/// A JSON Schema (draft 2020-12), of which json/README.md says what is honoured. `path` is put before the places in errors.
GrammarBuilder::Expr add_json_schema(GrammarBuilder& builder, const nlohmann::ordered_json& schema,
                                     JsonStyle style, std::string_view path = {});
/// The values of "format" in a schema that nobody knows here: they say nothing about values.
std::vector<std::string> unknown_formats(const nlohmann::ordered_json& schema);
/// Any JSON object; any JSON value.
GrammarBuilder::Expr add_json_object(GrammarBuilder& builder, JsonStyle style);
GrammarBuilder::Expr add_json_value(GrammarBuilder& builder, JsonStyle style);
/// A regular expression that the whole text matches: ECMA-262's syntax less look-around, back references and word boundaries. Anchors at
/// the ends are allowed.
GrammarBuilder::Expr add_regex(GrammarBuilder& builder, std::string_view pattern);
/// GBNF as llama.cpp documents it, from the rule "root" on.
GrammarBuilder::Expr add_gbnf(GrammarBuilder& builder, std::string_view text);
/// A Lark grammar, from the rule "start" on: README.md says what of it. In a JSON string its texts stand between the quotes.
GrammarBuilder::Expr add_lark(GrammarBuilder& builder, std::string_view text,
                              Spelling spelling = Spelling::plain);
/// One of these texts.
GrammarBuilder::Expr add_choices(GrammarBuilder& builder, const std::vector<std::string>& choices);

}  // namespace minfer
