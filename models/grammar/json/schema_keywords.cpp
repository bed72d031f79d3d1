#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>

#include "models/gguf/nearest_name.h"
#include "models/grammar/grammar_source.h"
#include "models/grammar/json/schema_merger.h"
#include "models/grammar/json/string_format.h"

namespace minfer {
namespace {

/// The shape of the schema at `place`; the schema may have added other shapes since its first keyword was read.
template <class Shape>
Shape& shape_of(std::vector<Shape>& shapes, SchemaDocument::Place place) {
  const auto known = std::ranges::find(shapes, place, &Shape::place);
  if (known != shapes.end()) return *known;
  shapes.push_back({.place = place});
  return shapes.back();
}

void add_new(std::vector<SchemaFacts::Keyword>& known, const SchemaFacts::Keyword& keyword) {
  const auto is_same = [&](const SchemaFacts::Keyword& other) { return *other.value == *keyword.value; };
  if (std::ranges::none_of(known, is_same)) known.push_back(keyword);
}

}  // namespace

// The effect of each keyword on the facts of a value.

/// Annotations of this draft, of older drafts and of OpenAPI.
constexpr std::array kAnnotations = std::to_array<std::string_view>(
    {"$schema",     "$comment",   "$defs",           "definitions",      "$anchor",      "id",
     "$vocabulary", "title",      "description",     "default",          "examples",     "readonly",
     "example",     "deprecated", "discriminator",   "externalDocs",     "xml",          "comment",
     "readOnly",    "writeOnly",  "contentEncoding", "contentMediaType", "contentSchema"});

constexpr std::array kUnsupportedKeywords = std::to_array<std::string_view>(
    {"contains", "minContains", "maxContains", "extends", "disallow", "divisibleBy"});

bool is_annotation(std::string_view keyword) {
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end();
}

const SchemaMerger::Handlers* SchemaMerger::handlers_of(std::string_view name) {
  using M = SchemaMerger;
  static const std::unordered_map<std::string_view, Handlers> known{
      {"$id", {&M::merge_id}},
      {"$ref", {&M::merge_reference, &M::exclude_reference}},
      {"allOf", {&M::merge_all, &M::exclude_all}},
      {"anyOf", {&M::add_group, &M::exclude_any}},
      {"oneOf", {&M::add_group, &M::exclude_one}},
      {"not", {&M::merge_not, &M::exclude_complement}},
      {"if", {&M::add_condition, &M::exclude_condition}},
      {"then", {&M::ignore}},  // "if" reads them
      {"else", {&M::ignore}},
      {"dependentRequired", {&M::add_dependents, &M::exclude_dependents}},
      {"dependentSchemas", {&M::add_dependents, &M::exclude_dependents}},
      {"dependencies", {&M::add_dependents, &M::exclude_dependents}},
      {"type", {&M::merge_type, &M::exclude_type}},
      {"nullable", {&M::merge_nullable}},
      {"enum", {&M::merge_values, &M::exclude_values}},
      {"const", {&M::merge_values, &M::exclude_values}},
      {"minimum", {&M::merge_limit, &M::exclude_limit}},
      {"maximum", {&M::merge_limit, &M::exclude_limit}},
      {"exclusiveMinimum", {&M::merge_limit, &M::exclude_limit}},
      {"exclusiveMaximum", {&M::merge_limit, &M::exclude_limit}},
      {"multipleOf", {&M::merge_divisor}},
      {"minLength", {&M::merge_count, &M::exclude_count}},
      {"maxLength", {&M::merge_count, &M::exclude_count}},
      {"minItems", {&M::merge_count, &M::exclude_count}},
      {"maxItems", {&M::merge_count, &M::exclude_count}},
      {"minProperties", {&M::merge_count, &M::exclude_count}},
      {"maxProperties", {&M::merge_count, &M::exclude_count}},
      {"pattern", {&M::merge_pattern, &M::exclude_pattern}},
      {"format", {&M::merge_format}},
      {"items", {&M::merge_array}},
      {"prefixItems", {&M::merge_array, &M::exclude_prefix}},
      {"additionalItems", {&M::merge_array}},
      {"properties", {&M::merge_object, &M::exclude_properties}},
      {"patternProperties", {&M::merge_object}},
      {"additionalProperties", {&M::merge_object}},
      {"propertyNames", {&M::merge_names}},
      {"required", {&M::merge_required, &M::exclude_required}},
      {"unevaluatedProperties", {&M::merge_unevaluated}},
      {"unevaluatedItems", {&M::merge_unevaluated}},
      {"uniqueItems", {&M::merge_unique}},
  };
  const auto found = known.find(name);
  if (found != known.end()) return &found->second;
  static const Handlers ignored{&M::ignore};
  if (is_annotation(name)) return &ignored;
  if (std::ranges::find(kUnsupportedKeywords, name) != kUnsupportedKeywords.end()) return nullptr;
  // The draft takes words that it does not know for annotations. One that may be a misspelt keyword is not passed over, nor one of the
  // names that the draft keeps for itself.
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all(kUnsupportedKeywords.begin(), kUnsupportedKeywords.end());
    for (const auto& [keyword, handlers] : known)
      all.emplace_back(keyword);
    return all;
  }();
  const bool is_private = name.starts_with("x-") || name.starts_with('_');
  const bool is_doubtful = name.starts_with('$') || !nearest_names(name, names).empty();
  return is_doubtful && !is_private ? nullptr : &ignored;
}

void SchemaMerger::expect(bool condition, const Keyword& keyword, std::string_view expected) const {
  if (!condition) {
    document_.refuse(keyword.place, fmt::format("{}: {} expected, found {}", keyword.name, expected,
                                                keyword.value.type_name()));
  }
}

void SchemaMerger::ignore(Partial& /*partial*/, const Keyword& /*keyword*/) {}

/// Below the root it would change what references mean.
void SchemaMerger::merge_id(Partial& /*partial*/, const Keyword& keyword) {
  if (keyword.place != SchemaDocument::kRoot)
    document_.refuse(keyword.place, "$id: not supported below the root");
}

void SchemaMerger::merge_reference(Partial& partial, const Keyword& keyword) {
  merge(partial, document_.resolve(keyword.place, keyword.value), keyword.origin);
}

void SchemaMerger::merge_all(Partial& partial, const Keyword& keyword) {
  for (const Place part : parts_of(keyword))
    merge(partial, part, keyword.origin);
}

JsonTypes SchemaMerger::types_of(const Keyword& keyword) const {
  static const std::unordered_map<std::string_view, JsonTypes> known{{"null", kNull},
                                                                     {"boolean", kBoolean},
                                                                     {"object", kObject},
                                                                     {"array", kArray},
                                                                     {"string", kString},
                                                                     {"integer", kInteger},
                                                                     {"number", kInteger | kFraction}};
  JsonTypes types = 0;
  const auto add = [&](const Json& name) {
    expect(name.is_string(), keyword, "the name of a type, or an array of such,");
    const auto found = known.find(name.get_ref<const std::string&>());
    if (found == known.end())
      document_.refuse(keyword.place,
                       fmt::format("type: there is no type {}", name.get_ref<const std::string&>()));
    types |= found->second;
  };
  if (keyword.value.is_array()) {
    for (const Json& name : keyword.value)
      add(name);
  } else {
    add(keyword.value);
  }
  const Json& schema = document_.at(keyword.place);
  const auto nullable = schema.find("nullable");
  if (nullable != schema.end() && *nullable == Json(true)) types |= kNull;
  return types;
}

void SchemaMerger::merge_type(Partial& partial, const Keyword& keyword) {
  partial.facts.types &= types_of(keyword);
}

/// OpenAPI 3.0: says something beside "type" only, where it is read.
void SchemaMerger::merge_nullable(Partial& /*partial*/, const Keyword& keyword) {
  expect(keyword.value.is_boolean(), keyword, "true or false");
}

/// The values of "const" or "enum"; each number in them is exactly the written number.
std::span<const SchemaMerger::Json> SchemaMerger::values_of(const Keyword& keyword) const {
  const bool is_const = keyword.name == "const";
  expect(is_const || keyword.value.is_array(), keyword, "an array");
  std::vector<const Json*> todo{&keyword.value};
  while (!todo.empty()) {
    const Json& value = *todo.back();
    todo.pop_back();
    refuse_rounded(keyword, value);
    builder_.spend(1);
    if (!value.is_structured()) continue;
    for (const Json& item : value)
      todo.push_back(&item);
  }
  if (is_const) return {&keyword.value, 1};
  return keyword.value.get_ref<const Json::array_t&>();
}

void SchemaMerger::refuse_rounded(const Keyword& keyword, const Json& number) const {
  if (is_rounded(number)) {
    document_.refuse(keyword.place,
                     fmt::format("{}: {}: beyond 2^53 only integers of at most 64 bits, written "
                                 "as such, are kept exactly",
                                 keyword.name, number.dump()));
  }
}

void SchemaMerger::merge_values(Partial& partial, const Keyword& keyword) {
  std::vector<const Json*> values;
  for (const Json& value : values_of(keyword))
    values.push_back(&value);
  std::optional<std::vector<const Json*>>& known = partial.facts.values;
  if (known) {
    const std::unordered_set<std::string> others = identities(*known);
    std::erase_if(values, [&](const Json* value) { return !others.contains(identity(*value)); });
  }
  if (values.empty()) partial.facts.types = 0;
  known = std::move(values);
}

void SchemaMerger::expect_number(const Keyword& keyword) const {
  expect(keyword.value.is_number() && std::isfinite(keyword.value.get<double>()), keyword, "a number");
  if (std::abs(keyword.value.get<double>()) < kMostWritten) refuse_rounded(keyword, keyword.value);
}

void SchemaMerger::merge_limit(Partial& partial, const Keyword& keyword) {
  expect_number(keyword);
  const SchemaFacts::Limit limit{&keyword.value, keyword.name.starts_with("exclusive")};
  const bool is_min = keyword.name == "minimum" || keyword.name == "exclusiveMinimum";
  if (is_min) {
    partial.facts.min.raise(limit);
  } else {
    partial.facts.max.lower(limit);
  }
}

void SchemaMerger::merge_divisor(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_number() && keyword.value.get<double>() > 0, keyword, "a number above 0");
  partial.facts.divisors.push_back({keyword.place, &keyword.value});
}

int64_t SchemaMerger::count_of(const Keyword& keyword) const {
  constexpr double kMost = 1e15;
  const Json& value = keyword.value;
  expect(
      value.is_number() && value.get<double>() >= 0 && std::trunc(value.get<double>()) == value.get<double>(),
      keyword, "a count, of 0 or more,");
  return static_cast<int64_t>(std::min(value.get<double>(), kMost));
}

SchemaFacts::Counts& SchemaMerger::counts_of(SchemaFacts& facts, const Keyword& keyword) {
  return keyword.name.ends_with("Length")  ? facts.length
         : keyword.name.ends_with("Items") ? facts.items
                                           : facts.members;
}

void SchemaMerger::merge_count(Partial& partial, const Keyword& keyword) {
  SchemaFacts::Counts& counts = counts_of(partial.facts, keyword);
  if (keyword.name.starts_with("min")) {
    counts.raise(count_of(keyword));
  } else {
    counts.lower(count_of(keyword));
  }
}

void SchemaMerger::merge_pattern(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_string(), keyword, "a string");
  add_new(partial.facts.patterns, {keyword.place, &keyword.value});
}

std::vector<std::string> unknown_formats(const nlohmann::ordered_json& schema) {
  // The last five say what a text is for, not how it is written (OpenAPI's and pydantic's).
  constexpr auto kKnown = std::to_array<std::string_view>(
      {"int32", "int64", "float", "double", "password", "path", "file-path", "directory-path", "binary"});
  constexpr auto kValues = std::to_array<std::string_view>({"const", "enum", "default", "examples"});
  std::vector<std::string> formats;
  for (std::vector<const nlohmann::ordered_json*> left{&schema}; !left.empty();) {
    const auto& place = *left.back();
    left.pop_back();
    for (const auto& [name, value] : place.items()) {
      const bool is_format = place.is_object() && name == "format" && value.is_string();
      const std::string_view format = is_format ? value.get_ref<const std::string&>() : std::string_view();
      if (is_format && !is_string_format(format) && std::ranges::find(kKnown, format) == kKnown.end())
        formats.emplace_back(format);
      if (value.is_structured() && std::ranges::find(kValues, name) == kValues.end()) left.push_back(&value);
    }
  }
  return formats;
}

/// Formats of strings, and OpenAPI's formats of numbers. No written number is beyond int64 or double. All others are annotations.
void SchemaMerger::merge_format(Partial& partial, const Keyword& keyword) {
  static const Json least_int32 = -2147483648, most_int32 = 2147483647;
  static const Json least_float = -3.4e38, most_float = 3.4e38;
  expect(keyword.value.is_string(), keyword, "a string");
  const auto& format = keyword.value.get_ref<const std::string&>();
  SchemaFacts& facts = partial.facts;
  if (is_string_format(format)) {
    add_new(facts.formats, {keyword.place, &keyword.value});
  } else if (format == "int32") {
    facts.min.raise({&least_int32});
    facts.max.lower({&most_int32});
  } else if (format == "float") {
    facts.min.raise({&least_float});
    facts.max.lower({&most_float});
  }
}

void SchemaMerger::merge_array(Partial& partial, const Keyword& keyword) {
  SchemaFacts::ArrayShape& shape = shape_of(partial.facts.arrays, keyword.place);
  if (keyword.name == "additionalItems") {
    shape.additional = &keyword.value;
  } else if (keyword.name == "items") {
    (keyword.value.is_array() ? shape.list : shape.items) = &keyword.value;
  } else {
    expect(keyword.value.is_array(), keyword, "an array of schemas");
    shape.prefix = &keyword.value;
  }
  if (shape.prefix != nullptr && shape.list != nullptr)
    document_.refuse(keyword.place, "items: a list beside prefixItems, expected one of them");
}

void SchemaMerger::merge_object(Partial& partial, const Keyword& keyword) {
  SchemaFacts::ObjectShape& shape = shape_of(partial.facts.objects, keyword.place);
  if (keyword.name == "additionalProperties") {
    shape.additional = &keyword.value;
  } else {
    expect(keyword.value.is_object(), keyword, "an object of schemas");
    (keyword.name == "properties" ? shape.properties : shape.patterns) = &keyword.value;
  }
}

void SchemaMerger::merge_names(Partial& partial, const Keyword& keyword) {
  partial.facts.names.push_back(document_.part(keyword.place, keyword.name, keyword.value));
}

void SchemaMerger::merge_required(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_array(), keyword, "an array of names");
  std::vector<std::string>& required = partial.facts.required;
  std::unordered_set<std::string> known(required.begin(), required.end());
  builder_.spend(required.size() + keyword.value.size());
  for (const Json& name : keyword.value) {
    expect(name.is_string(), keyword, "an array of names");
    if (known.insert(name.get<std::string>()).second) required.push_back(name.get<std::string>());
  }
}

/// `false` counts what the schema itself, and what it merges, says something of: that is all there is if no other schema stands beside it.
void SchemaMerger::merge_unevaluated(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_boolean(), keyword, "true or false");
  if (keyword.value.get<bool>()) return;
  if (num_given_ != 1 || origins_[static_cast<size_t>(keyword.origin)].parent >= 0)
    document_.refuse(keyword.place,
                     fmt::format("{}: not supported in a part of another schema", keyword.name));
  (keyword.name == "unevaluatedItems" ? partial.facts.no_other_items : partial.facts.no_other_members) = true;
}

void SchemaMerger::merge_unique(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_boolean(), keyword, "true or false");
  if (keyword.value.get<bool>()) partial.facts.unique_items = keyword.place;
}

}  // namespace minfer
