#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/json/number_range.h"
#include "models/grammar/json/schema_writer.h"
#include "models/grammar/json/string_format.h"
#include "models/grammar/regex/regex.h"

namespace minfer {
namespace {

constexpr JsonTypes kContainers = kArray | kObject;
constexpr JsonTypes kNumbers = kInteger | kFraction;

/// Its digits without an exponent.
std::string written_out(const SchemaDocument::Json& number) {
  if (!number.is_number_float()) return number.dump();
  std::array<char, 512> digits;
  return {digits.data(),
          std::to_chars(digits.begin(), digits.end(), number.get<double>(), std::chars_format::fixed).ptr};
}

}  // namespace

GrammarBuilder::Expr SchemaWriter::write(const Schemas& schemas) {
  const Expr root = value(schemas);
  while (!waiting_.empty()) {
    const Waiting next = std::move(waiting_.back());
    waiting_.pop_back();
    builder_.define(next.rule, value(next.alternatives));
  }
  return root;
}

SchemaWriter::Expr SchemaWriter::value(const Schemas& schemas) {
  const Schemas simple = merger_.simplified(schemas);
  if (simple.empty()) return text_.value();
  const auto known = known_.find(simple);
  if (known != known_.end()) return known->second;
  std::vector<SchemaFacts> alternatives = merger_.alternatives(simple);
  const bool is_scalar = std::ranges::all_of(alternatives, [](const SchemaFacts& facts) {
    return facts.values || (facts.types & kContainers) == 0;
  });
  if (is_scalar) return known_.emplace(simple, value(alternatives)).first->second;
  const std::string name = document_.name_of(simple.front());
  const GrammarBuilder::Rule rule = builder_.add_rule(name.empty() ? "the schema" : name);
  waiting_.push_back({rule, std::move(alternatives)});
  return known_.emplace(simple, builder_.reference(rule)).first->second;
}

SchemaWriter::Expr SchemaWriter::value(const std::vector<SchemaFacts>& alternatives) {
  std::vector<Expr> choices;
  for (const SchemaFacts& facts : alternatives)
    choices.push_back(value(facts));
  return builder_.choice(choices);
}

SchemaWriter::Expr SchemaWriter::value(const SchemaFacts& facts) {
  if (facts.values) return listed_values(facts);
  std::vector<Expr> choices;
  for (const Json& scalar : {Json(nullptr), Json(true), Json(false)}) {
    if (admits_scalar(facts, scalar)) choices.push_back(builder_.literal(scalar.dump()));
  }
  if ((facts.types & kNumbers) != 0) choices.push_back(number(facts));
  if ((facts.types & kString) != 0) choices.push_back(string(facts));
  if ((facts.types & kArray) != 0) choices.push_back(array(facts));
  if ((facts.types & kObject) != 0) choices.push_back(object(facts));
  return builder_.choice(choices);
}

/// The values of "enum" and "const" that the other facts admit.
SchemaWriter::Expr SchemaWriter::listed_values(const SchemaFacts& facts) {
  builder_.spend(facts.values->size() * facts.excluded.size());
  SchemaFacts others = facts;
  others.values.reset();
  std::vector<std::string> scalars, texts;
  std::vector<Expr> choices;
  for (const Json* value : *facts.values) {
    if (!admits_scalar(facts, *value)) continue;
    if (value->is_structured()) {
      if (admits(others, *value)) choices.push_back(text_.constant(*value));
    } else if (value->is_string()) {
      texts.push_back(JsonText::escaped(value->get_ref<const std::string&>()));
    } else {
      scalars.push_back(value->dump());
    }
  }
  Expr strings = one_of(builder_, texts);
  if (!texts.empty() && restricts_text(facts)) strings = builder_.both(strings, restricted_text(facts));
  choices.push_back(one_of(builder_, scalars));
  choices.push_back(text_.quoted(strings));
  return builder_.choice(choices);
}

SchemaWriter::Expr SchemaWriter::number(const SchemaFacts& facts) {
  bool integers_only = (facts.types & kFraction) == 0;
  std::vector<Expr> multiples;
  for (const SchemaFacts::Keyword& divisor : facts.divisors) {
    const auto number = divisor.value->get<double>();
    const auto whole = static_cast<int64_t>(std::min(number, 1e15));
    const auto texts = static_cast<double>(whole) == number
                           ? multiples_of(builder_, whole)
                           : decimal_multiples(builder_, written_out(*divisor.value));
    if (!texts)
      document_.refuse(divisor.place, fmt::format("multipleOf: {} is not supported", divisor.value->dump()));
    integers_only = integers_only || static_cast<double>(whole) == number;
    multiples.push_back(*texts);
  }
  const auto limit = [](const SchemaFacts::Limit& given) {
    return given.number == nullptr ? std::nullopt
                                   : std::optional(NumberLimit{written_out(*given.number), given.excluded});
  };
  const auto min = limit(facts.min), max = limit(facts.max);
  const Expr excluded = excluded_numbers(facts, integers_only);
  const bool excludes_any = builder_.node(excluded).kind != GrammarBuilder::Kind::nothing;
  if (!min && !max && multiples.empty() && !excludes_any)
    return integers_only ? text_.integer() : text_.number();
  try {
    Expr numbers = number_range(builder_, min, max, integers_only);
    for (const Expr texts : multiples)
      numbers = builder_.both(numbers, texts);
    if (!excludes_any) return numbers;
    if (!integers_only) numbers = builder_.both(numbers, exact_decimals(builder_));
    return builder_.minus(numbers, excluded);
  } catch (const GrammarError& error) {
    document_.refuse(facts.place, fmt::format("minimum, maximum: {}", error.what()));
  }
}

/// All that equals an excluded number, as ranges write it; where none may be whole, those too.
SchemaWriter::Expr SchemaWriter::excluded_numbers(const SchemaFacts& facts, bool integers_only) {
  std::vector<Expr> choices;
  if ((facts.types & kInteger) == 0) choices.push_back(whole_decimals(builder_));
  for (const SchemaFacts::Scalars* scalars : facts.excluded) {
    for (const Json* number : scalars->numbers) {
      if (std::abs(number->get<double>()) >= kMostWritten) continue;
      const NumberLimit limit{written_out(*number)};
      choices.push_back(number_range(builder_, limit, limit, integers_only));
    }
  }
  return builder_.choice(choices);
}

SchemaWriter::Expr SchemaWriter::pattern_texts(Place place, std::string_view keyword,
                                               const std::string& pattern) {
  const auto known = patterns_.find(pattern);
  if (known != patterns_.end()) return known->second;
  try {
    const Expr texts = regex_texts(builder_, pattern, RegexScope::search, Spelling::json_string);
    return patterns_.emplace(pattern, texts).first->second;
  } catch (const GrammarError& error) {
    document_.refuse(place, fmt::format("{}: {}", keyword, error.what()));
  }
}

SchemaWriter::Expr SchemaWriter::format_texts(const std::string& format) {
  const auto known = formats_.find(format);
  if (known != formats_.end()) return known->second;
  return formats_.emplace(format, minfer::format_texts(builder_, format, Spelling::json_string))
      .first->second;
}

bool SchemaWriter::restricts_text(const SchemaFacts& facts) const {
  return !facts.patterns.empty() || !facts.formats.empty() || !facts.excluded_patterns.empty() ||
         std::ranges::any_of(facts.excluded,
                             [](const SchemaFacts::Scalars* scalars) { return !scalars->strings.empty(); });
}

/// Within the quotes, escaped only where that is necessary: so a text is written in one way, and patterns say which.
SchemaWriter::Expr SchemaWriter::restricted_text(const SchemaFacts& facts) {
  std::optional<Expr> text;
  const auto add = [&](Expr expr) { text = text ? builder_.both(*text, expr) : expr; };
  for (const auto& [place, pattern] : facts.patterns)
    add(pattern_texts(place, "pattern", pattern->get_ref<const std::string&>()));
  for (const auto& [place, name] : facts.formats)
    add(format_texts(name->get_ref<const std::string&>()));
  const auto [min, max] = facts.length;
  if (!text || min > 0 || max >= 0) add(builder_.repeat(text_.plain_character(), min, max));
  for (const auto& [place, pattern] : facts.excluded_patterns)
    text = builder_.minus(*text, pattern_texts(place, "pattern", pattern->get_ref<const std::string&>()));
  std::vector<std::string> excluded;
  for (const SchemaFacts::Scalars* scalars : facts.excluded) {
    for (const std::string& string : scalars->strings)
      excluded.push_back(JsonText::escaped(string));
  }
  return builder_.minus(*text, one_of(builder_, std::move(excluded)));
}

SchemaWriter::Expr SchemaWriter::string(const SchemaFacts& facts) {
  if (restricts_text(facts)) return text_.quoted(restricted_text(facts));
  const auto [min, max] = facts.length;
  if (min == 0 && max < 0) return text_.string();
  return text_.quoted(builder_.repeat(text_.any_character(), min, max));
}

GrammarBuilder::Expr add_json_schema(GrammarBuilder& builder, const nlohmann::ordered_json& schema,
                                     JsonStyle style, std::string_view path) {
  JsonText text(builder, style);
  SchemaDocument document(schema, path);
  return SchemaWriter(text, document).write({SchemaDocument::kRoot});
}

}  // namespace minfer
