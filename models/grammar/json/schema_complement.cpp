#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "models/grammar/json/schema_merger.h"

namespace minfer {
namespace {

constexpr size_t kMostBranchesOfOneOf = 16;  // which are taken in pairs
constexpr size_t kWorkOfJson = 100;          // to copy a value of it

constexpr JsonTypes kNumberTypes = kInteger | kFraction;

size_t size_of_copy(const SchemaDocument::Json& json) {
  size_t size = kWorkOfJson;
  if (json.is_string()) size += json.get_ref<const std::string&>().size();
  if (json.is_structured()) {
    for (const auto& [name, item] : json.items())
      size += name.size() + size_of_copy(item);
  }
  return size;
}

}  // namespace

// The values that a schema does not allow, keyword by keyword: a schema of several keywords allows a value if all of them do.
// Schemas that are not reached are not looked at, so nothing grows with the depth of schemas within each other.

SchemaMerger::Place SchemaMerger::complement(Place place) {
  return complement_at(place, {place, "", nullptr});
}

/// A JSON null stands where the schema would: no client can write one that means this.
SchemaMerger::Place SchemaMerger::complement_at(Place parent, const Complement& complement) {
  const Json* const of = complement.value == nullptr ? &document_.at(complement.place) : complement.value;
  const auto [known, is_new] = complement_places_.try_emplace({of, std::string(complement.name)}, -1);
  if (is_new) {
    known->second = made(parent, "not", Json(nullptr));
    complements_.emplace(&made_.back(), complement);
  }
  return known->second;
}

/// `schema` has a null at `child`, which becomes the complement of `of`.
SchemaMerger::Place SchemaMerger::made_with_complement(Place parent, Json schema,
                                                       const Json::json_pointer& child, Place of) {
  builder_.spend(size_of_copy(schema));
  const Place place = made(parent, "not", std::move(schema));
  complements_.emplace(&made_.back()[child], Complement{of, "", nullptr});
  return place;
}

void SchemaMerger::merge_not(Partial& partial, const Keyword& keyword) {
  merge(partial, complement(document_.part(keyword.place, keyword.name, keyword.value)), keyword.origin);
}

void SchemaMerger::merge_complement(Partial& partial, const Complement& of, int origin) {
  if (of.value != nullptr)
    return (this->*handlers_of(of.name)->exclude)(partial, {of.place, of.name, *of.value, origin});
  const Json& schema = document_.at(of.place);
  if (schema.is_boolean()) {
    if (schema.get<bool>()) partial.facts.types = 0;
    return;
  }
  if (!schema.is_object())
    document_.refuse(
        of.place, fmt::format("a schema (an object, true or false) expected, found {}", schema.type_name()));
  std::vector<Complement> keywords;
  for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
    const Handlers* handlers = handlers_of(name);
    if (handlers == nullptr) document_.refuse(of.place, fmt::format("{}: not supported", name));
    if (handlers->merge != &SchemaMerger::ignore && handlers->merge != &SchemaMerger::merge_nullable)
      keywords.push_back({of.place, name, &value});
  }
  if (keywords.empty()) {
    partial.facts.types = 0;
  } else if (keywords.size() == 1) {
    merge_complement(partial, keywords.front(), origin);
  } else {
    const auto [known, is_new] = branches_.try_emplace({&schema, "complement"});
    for (size_t i = 0; is_new && i < keywords.size(); ++i)
      known->second.push_back({complement_at(of.place, keywords[i])});
    add_pruned(partial, of.place, known->second, origin);
  }
}

/// A group that is made once of a keyword's value; none of its branches: no value at all.
void SchemaMerger::add_excluding(Partial& partial, const Keyword& keyword,
                                 const std::function<std::vector<Schemas>()>& branches) {
  const auto [known, is_new] =
      branches_.try_emplace({&keyword.value, fmt::format("complement of {}", keyword.name)});
  if (is_new) known->second = branches();
  partial.has_complement = partial.has_complement || (keyword.name != "required" && keyword.name != "allOf");
  add_pruned(partial, keyword.place, known->second, keyword.origin);
}

/// Leaves no value if the keyword allows all values as it is; refuses all other keywords, which cannot be excluded.
void SchemaMerger::exclude_nothing(Partial& partial, const Keyword& keyword) {
  constexpr auto kTrue =
      std::to_array<std::string_view>({"items", "additionalItems", "additionalProperties", "propertyNames",
                                       "unevaluatedProperties", "unevaluatedItems"});
  const Json& value = keyword.value;
  const bool is_true = (value.is_boolean() && value.get<bool>()) || (value.is_object() && value.empty());
  const bool says_nothing = keyword.name == "uniqueItems" ? value == Json(false)
                            : keyword.name == "patternProperties"
                                ? value.is_object() && value.empty()
                                : is_true && std::ranges::find(kTrue, keyword.name) != kTrue.end();
  if (!says_nothing)
    document_.refuse(keyword.place, fmt::format("{}: not supported where a schema is excluded (not, if, "
                                                "oneOf)",
                                                keyword.name));
  partial.facts.types = 0;
}

void SchemaMerger::exclude_reference(Partial& partial, const Keyword& keyword) {
  merge(partial, complement(document_.resolve(keyword.place, keyword.value)), keyword.origin);
}

void SchemaMerger::exclude_any(Partial& partial, const Keyword& keyword) {
  for (const Place part : parts_of(keyword))
    merge(partial, complement(part), keyword.origin);
}

void SchemaMerger::exclude_all(Partial& partial, const Keyword& keyword) {
  add_excluding(partial, keyword, [&] {
    std::vector<Schemas> branches;
    for (const Place part : parts_of(keyword))
      branches.push_back({complement(part)});
    return branches;
  });
}

/// None of them holds, or two.
void SchemaMerger::exclude_one(Partial& partial, const Keyword& keyword) {
  const Schemas parts = parts_of(keyword);
  if (parts.size() > kMostBranchesOfOneOf)
    document_.refuse(keyword.place, fmt::format("oneOf: more than {} schemas where a schema is excluded",
                                                kMostBranchesOfOneOf));
  add_excluding(partial, keyword, [&] {
    std::vector<Schemas> branches(1);
    for (size_t i = 0; i < parts.size(); ++i) {
      branches.front().push_back(complement(parts[i]));
      for (size_t other = i + 1; other < parts.size(); ++other)
        branches.push_back({parts[i], parts[other]});
    }
    return branches;
  });
}

void SchemaMerger::exclude_complement(Partial& partial, const Keyword& keyword) {
  partial.has_complement = true;
  merge(partial, document_.part(keyword.place, keyword.name, keyword.value), keyword.origin);
}

void SchemaMerger::exclude_condition(Partial& partial, const Keyword& keyword) {
  add_excluding(partial, keyword, [&] {
    const Place condition = document_.part(keyword.place, keyword.name, keyword.value);
    std::vector<Schemas> branches;
    if (const auto then = sibling(keyword, "then")) branches.push_back({condition, complement(*then)});
    if (const auto otherwise = sibling(keyword, "else"))
      branches.push_back({complement(condition), complement(*otherwise)});
    return branches;
  });
}

void SchemaMerger::exclude_dependents(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_object(), keyword, "an object");
  add_excluding(partial, keyword, [&] {
    std::vector<Schemas> branches;
    for (const auto& [name, dependent] : keyword.value.get_ref<const Json::object_t&>()) {
      const Place what = lists_dependents(keyword, dependent)
                             ? made(keyword.place, keyword.name, {{"required", dependent}})
                             : document_.part(keyword.place, keyword.name, name, dependent);
      branches.push_back({with_member(keyword, name), complement(what)});
    }
    return branches;
  });
}

void SchemaMerger::exclude_type(Partial& partial, const Keyword& keyword) {
  partial.facts.types &= ~types_of(keyword);
}

/// Scalars are facts. An object or an array is what another schema describes, which is excluded.
void SchemaMerger::exclude_values(Partial& partial, const Keyword& keyword) {
  const auto [known, is_new] = excluded_values_.try_emplace(&keyword.value);
  ExcludedValues& excluded = known->second;
  if (is_new) {
    for (const Json& value : values_of(keyword)) {
      if (value.is_structured()) {
        excluded.containers.push_back(&value);
      } else {
        excluded.scalars.add(value);
      }
    }
  }
  partial.facts.excluded.push_back(&excluded.scalars);
  for (const Json* value : excluded.containers)
    exclude_container(partial, {keyword.place, keyword.name, *value, keyword.origin});
}

void SchemaMerger::exclude_container(Partial& partial, const Keyword& keyword) {
  const Json& value = keyword.value;
  add_excluding(partial, keyword, [&]() -> std::vector<Schemas> {
    builder_.spend(size_of_copy(value));
    if (value.is_array()) {
      Json same = {{"type", "array"}, {"minItems", value.size()}, {"maxItems", value.size()}};
      for (const Json& item : value)
        same["prefixItems"].push_back({{"const", item}});
      return {{complement(made(keyword.place, keyword.name, std::move(same)))}};
    }
    // Members of an object that has more are declared, so that none of them counts twice.
    Json same = {{"type", "object"}, {"required", Json::array()}, {"properties", Json::object()}};
    Json more = {{"type", "object"}, {"minProperties", value.size() + 1}, {"properties", Json::object()}};
    for (const auto& [name, member] : value.get_ref<const Json::object_t&>()) {
      same["required"].push_back(name);
      same["properties"][name]["const"] = member;
      more["properties"][name] = true;
    }
    return {{complement(made(keyword.place, keyword.name, std::move(same)))},
            {made(keyword.place, keyword.name, std::move(more))}};
  });
}

void SchemaMerger::exclude_limit(Partial& partial, const Keyword& keyword) {
  expect_number(keyword);
  partial.facts.types &= kNumberTypes;
  const SchemaFacts::Limit limit{&keyword.value, !keyword.name.starts_with("exclusive")};
  if (keyword.name == "minimum" || keyword.name == "exclusiveMinimum") {
    partial.facts.max.lower(limit);
  } else {
    partial.facts.min.raise(limit);
  }
}

void SchemaMerger::exclude_count(Partial& partial, const Keyword& keyword) {
  const int64_t count = count_of(keyword);
  const bool is_min = keyword.name.starts_with("min");
  SchemaFacts::Counts& counts = counts_of(partial.facts, keyword);
  partial.facts.types &= keyword.name.ends_with("Length")  ? kString
                         : keyword.name.ends_with("Items") ? kArray
                                                           : kObject;
  if (is_min && count == 0) {
    partial.facts.types = 0;
  } else if (is_min) {
    counts.lower(count - 1);
  } else {
    counts.raise(count + 1);
  }
}

void SchemaMerger::exclude_pattern(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_string(), keyword, "a string");
  partial.facts.types &= kString;
  partial.facts.excluded_patterns.push_back({keyword.place, &keyword.value});
}

/// One of the members is there, and not as it should be. A member before it keeps its place in the order of members.
void SchemaMerger::exclude_properties(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_object(), keyword, "an object of schemas");
  add_excluding(partial, keyword, [&] {
    std::vector<Schemas> branches;
    Json properties = Json::object();
    for (const auto& [name, schema] : keyword.value.get_ref<const Json::object_t&>()) {
      properties[name] = nullptr;
      const Json differs = {
          {"type", "object"}, {"required", Json::array({name})}, {"properties", properties}};
      branches.push_back(
          {made_with_complement(keyword.place, differs, Json::json_pointer() / "properties" / name,
                                document_.part(keyword.place, keyword.name, name, schema))});
      properties[name] = true;
    }
    return branches;
  });
}

/// One of the members is not there.
void SchemaMerger::exclude_required(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_array(), keyword, "an array of names");
  partial.facts.types &= kObject;
  add_excluding(partial, keyword, [&] {
    std::vector<Schemas> branches;
    for (const Json& name : keyword.value) {
      expect(name.is_string(), keyword, "an array of names");
      branches.push_back({without_member(keyword, name.get_ref<const std::string&>())});
    }
    return branches;
  });
}

/// One of the items is there, and not as it should be.
void SchemaMerger::exclude_prefix(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_array(), keyword, "an array of schemas");
  add_excluding(partial, keyword, [&] {
    std::vector<Schemas> branches;
    for (size_t i = 0; i < keyword.value.size(); ++i) {
      Json differs = {{"type", "array"}, {"minItems", i + 1}};
      builder_.spend(kWorkOfJson * (i + 1));
      differs["prefixItems"] = Json(i, true);
      differs["prefixItems"].push_back(nullptr);
      const Place schema = document_.part(keyword.place, keyword.name, i, keyword.value[i]);
      branches.push_back({made_with_complement(keyword.place, std::move(differs),
                                               Json::json_pointer() / "prefixItems" / i, schema)});
    }
    return branches;
  });
}

}  // namespace minfer
