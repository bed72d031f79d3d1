#include "models/grammar/json/json_text.h"

#include <string>

#include <nlohmann/json.hpp>

#include "models/grammar/code_points.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMostIndentation = 20;

std::string dumped(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

template <class Make>
JsonText::Expr JsonText::made_once(std::optional<GrammarBuilder::Rule>& rule, std::string_view name,
                                   const Make& make) {
  if (!rule) {
    rule = builder_.add_rule(std::string(name));
    builder_.define(*rule, make());
  }
  return builder_.reference(*rule);
}

JsonText::Expr JsonText::value() {
  return made_once(value_, "JSON value", [&] {
    return builder_.choice({object(), array(), string(), number(), builder_.literal("true"),
                            builder_.literal("false"), builder_.literal("null")});
  });
}

JsonText::Expr JsonText::object() {
  return made_once(object_, "JSON object",
                   [&] { return enclosed('{', list(member(string(), value()), 0, -1), '}'); });
}

JsonText::Expr JsonText::array() {
  return made_once(array_, "JSON array", [&] { return enclosed('[', list(value(), 0, -1), ']'); });
}

JsonText::Expr JsonText::string() {
  return made_once(string_, "JSON string", [&] { return quoted(builder_.any_number(any_character())); });
}

JsonText::Expr JsonText::integer() {
  const Expr digit = builder_.byte('0', '9');
  return builder_.choice({byte('0'), builder_.sequence({builder_.optional(byte('-')), builder_.byte('1', '9'),
                                                        builder_.repeat(digit, 0, kMostIntegerDigits - 1)})});
}

JsonText::Expr JsonText::number() {
  const Expr digit = builder_.byte('0', '9');
  const Expr whole = builder_.choice(
      {byte('0'),
       builder_.sequence({builder_.byte('1', '9'), builder_.repeat(digit, 0, kMostIntegerDigits - 1)})});
  const Expr fraction = builder_.sequence({byte('.'), builder_.repeat(digit, 1, kMostFractionDigits)});
  const Expr exponent = builder_.sequence({builder_.choice({byte('e'), byte('E')}),
                                           builder_.optional(builder_.choice({byte('+'), byte('-')})),
                                           builder_.repeat(digit, 1, 2)});
  return builder_.sequence(
      {builder_.optional(byte('-')), whole, builder_.optional(fraction), builder_.optional(exponent)});
}

/// Objects have many of these: the indentation, which would be most of their states, is called.
JsonText::Expr JsonText::space() {
  if (style_ == JsonStyle::compact) return builder_.empty();
  const Expr indentation = made_once(indentation_, "indentation", [&] {
    return builder_.repeat(builder_.choice({byte(' '), byte('\t')}), 0, kMostIndentation);
  });
  return builder_.choice({builder_.empty(), byte(' '), builder_.sequence({byte('\n'), indentation})});
}

JsonText::Expr JsonText::plain_character() {
  static constexpr CodePointRange kAll{0, kMaxCodePoint};
  return spelled(builder_, Spelling::json_string, std::span(&kAll, 1));
}

/// A surrogate pair has two \uXXXX escapes. One of them alone is not text.
JsonText::Expr JsonText::any_character() {
  const auto either = [&](char lower, char upper) { return builder_.choice({byte(lower), byte(upper)}); };
  const Expr digit = builder_.byte('0', '9');
  const Expr hex = builder_.choice({digit, builder_.byte('a', 'f'), builder_.byte('A', 'F')});
  const Expr no_surrogate = builder_.choice(
      {builder_.sequence({builder_.choice({digit, builder_.byte('a', 'c'), builder_.byte('A', 'C'),
                                           builder_.byte('e', 'f'), builder_.byte('E', 'F')}),
                          hex, hex, hex}),
       builder_.sequence({either('d', 'D'), builder_.byte('0', '7'), hex, hex})});
  const Expr high = builder_.choice({builder_.byte('8', '9'), either('a', 'A'), either('b', 'B')});
  const Expr low = builder_.choice({builder_.byte('c', 'f'), builder_.byte('C', 'F')});
  const Expr pair = builder_.sequence(
      {either('d', 'D'), high, hex, hex, builder_.literal("\\u"), either('d', 'D'), low, hex, hex});
  std::vector<Expr> escapes;
  for (const char c : std::string_view("\"\\/bfnrt"))
    escapes.push_back(byte(c));
  escapes.push_back(builder_.sequence({byte('u'), builder_.choice({no_surrogate, pair})}));
  return builder_.choice({builder_.characters({{' ', '!'}, {'#', '['}, {']', kMaxCodePoint}}),
                          builder_.sequence({byte('\\'), builder_.choice(escapes)})});
}

JsonText::Expr JsonText::quoted(Expr content) {
  return builder_.sequence({byte('"'), content, byte('"')});
}

std::string JsonText::escaped(std::string_view text) {
  const std::string written = dumped(Json(text));
  return written.substr(1, written.size() - 2);
}

JsonText::Expr JsonText::constant(const Json& value) {
  if (!value.is_structured()) return builder_.literal(dumped(value));
  std::vector<Expr> parts;
  for (const auto& [name, item] : value.items()) {
    const Expr part =
        value.is_object() ? member(builder_.literal(dumped(Json(name))), constant(item)) : constant(item);
    parts.push_back(parts.empty() ? part : next(part));
  }
  return value.is_object() ? enclosed('{', builder_.sequence(parts), '}')
                           : enclosed('[', builder_.sequence(parts), ']');
}

JsonText::Expr JsonText::next(Expr item) {
  return builder_.sequence({byte(','), space(), item});
}

JsonText::Expr JsonText::list(Expr item, int64_t min, int64_t max) {
  if (max >= 0 && max < min) return builder_.nothing();
  if (max == 0) return builder_.empty();
  const Expr items =
      builder_.sequence({item, builder_.repeat(next(item), min > 0 ? min - 1 : 0, max < 0 ? -1 : max - 1)});
  return min > 0 ? items : builder_.optional(items);
}

JsonText::Expr JsonText::member(Expr name, Expr value) {
  return builder_.sequence({name, byte(':'), space(), value});
}

JsonText::Expr JsonText::enclosed(char open, Expr content, char close) {
  if (builder_.node(content).kind == GrammarBuilder::Kind::empty)
    return builder_.sequence({byte(open), space(), byte(close)});
  return builder_.sequence({byte(open), space(), content, space(), byte(close)});
}

GrammarBuilder::Expr add_json_object(GrammarBuilder& builder, JsonStyle style) {
  return JsonText(builder, style).object();
}

GrammarBuilder::Expr add_json_value(GrammarBuilder& builder, JsonStyle style) {
  return JsonText(builder, style).value();
}

}  // namespace minfer
