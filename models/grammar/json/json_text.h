#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/grammar_source.h"

namespace minfer {

/// JSON as texts (RFC 8259): the texts of values that no schema constrains further. Shared parts are made once, as rules.
///
/// Numbers have at most kMostIntegerDigits digits in front of the point, kMostFractionDigits behind it and two in the exponent. So a model
/// cannot write a number for ever, and all numbers are finite doubles.
class JsonText {
 public:
  using Expr = GrammarBuilder::Expr;

  JsonText(GrammarBuilder& builder, JsonStyle style) : builder_(builder), style_(style) {}

  GrammarBuilder& builder() const { return builder_; }

  Expr value();
  Expr object();
  Expr array();
  Expr string();
  Expr number();
  Expr integer();

  /// White space between tokens: none, a space, or a line end with a bounded indentation; compact: none.
  Expr space();
  /// One code point of a string: in any spelling; or in the only spelling that restricted strings use.
  Expr any_character();
  Expr plain_character();
  /// `content` within quotes.
  Expr quoted(Expr content);
  /// A string in its written form, without the quotes.
  static std::string escaped(std::string_view text);
  /// A value in its written form, with white space between its tokens.
  Expr constant(const nlohmann::ordered_json& value);

  /// A comma and the item behind it.
  Expr next(Expr item);
  /// `min` to `max` items (-1: any number) between commas.
  Expr list(Expr item, int64_t min, int64_t max);
  /// A name, in its written form with quotes, and its value.
  Expr member(Expr name, Expr value);
  Expr enclosed(char open, Expr content, char close);

 private:
  Expr byte(char c) { return builder_.byte(static_cast<uint8_t>(c), static_cast<uint8_t>(c)); }
  template <class Make>
  Expr made_once(std::optional<GrammarBuilder::Rule>& rule, std::string_view name, const Make& make);

  GrammarBuilder& builder_;
  JsonStyle style_;
  std::optional<GrammarBuilder::Rule> value_, object_, array_, string_, indentation_;
};

inline constexpr int kMostIntegerDigits = 18;
inline constexpr int kMostFractionDigits = 16;

}  // namespace minfer
