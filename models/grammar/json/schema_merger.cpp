#include "models/grammar/json/schema_merger.h"

#include <algorithm>

#include <fmt/format.h>

#include "models/grammar/automaton/nfa.h"
#include "models/grammar/regex/regex.h"

namespace minfer {
namespace {

constexpr int kMostOrigins = 256;  // schemas that bring each other to one value
constexpr size_t kMostGroups = 256;
constexpr size_t kMostAlternatives = 20'000;
constexpr size_t kWorkOfMerge = 100;
constexpr size_t kWorkOfCopy = 10;  // of each part of what is tried
constexpr size_t kWorkOfKept =
    100;  // of each part of what is found, so that alternatives take some 100 MiB at most

bool is_true(const SchemaDocument::Json& schema) {
  return schema.is_boolean() ? schema.get<bool>() : schema.is_object() && schema.empty();
}

}  // namespace

/// How much there is to copy for a branch.
size_t SchemaMerger::size_of(const Partial& partial) {
  const SchemaFacts& facts = partial.facts;
  return 1 + partial.merged.size() + partial.groups.size() + facts.required.size() + facts.patterns.size() +
         facts.formats.size() + facts.divisors.size() + facts.arrays.size() + facts.objects.size() +
         facts.names.size() + facts.excluded.size() + facts.excluded_patterns.size() +
         (facts.values ? facts.values->size() : 0);
}

std::vector<SchemaFacts> SchemaMerger::alternatives(const Schemas& schemas) {
  Partial partial;
  if (!schemas.empty()) partial.facts.place = schemas.front();
  num_given_ = schemas.size();
  for (const Place place : schemas)
    merge(partial, place, -1);
  std::vector<SchemaFacts> facts;
  expand(std::move(partial), facts);
  return facts;
}

/// Brings in what one schema says. A schema on its own way back to itself would never come to an end.
void SchemaMerger::merge(Partial& partial, Place place, int origin) {
  builder_.spend(kWorkOfMerge);
  for (int i = origin; i >= 0; i = origins_[static_cast<size_t>(i)].parent) {
    if (origins_[static_cast<size_t>(i)].place == place)
      document_.refuse(place, "$ref: leads back to the same schema without a member or an item in between");
  }
  if (std::ranges::find(partial.merged, place) != partial.merged.end()) return;
  builder_.spend(partial.merged.size());
  partial.merged.push_back(place);
  const Json& schema = document_.at(place);
  if (schema.is_boolean()) {
    if (!schema.get<bool>()) partial.facts.types = 0;
    return;
  }
  const auto complement = complements_.find(&schema);
  if (!schema.is_object() && complement == complements_.end())
    document_.refuse(
        place, fmt::format("a schema (an object, true or false) expected, found {}", schema.type_name()));
  const int depth = origin < 0 ? 0 : origins_[static_cast<size_t>(origin)].depth + 1;
  if (depth > kMostOrigins)
    document_.refuse(place, fmt::format("more than {} schemas that refer to each other", kMostOrigins));
  origins_.push_back({place, origin, depth});
  const auto own = static_cast<int>(origins_.size() - 1);
  if (complement != complements_.end()) return merge_complement(partial, complement->second, own);
  for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
    const Handlers* handlers = handlers_of(name);
    if (handlers == nullptr) document_.refuse(place, name + ": not supported");
    (this->*handlers->merge)(partial, {place, name, value, own});
  }
}

/// Tries the branches of the groups one after the other, in all combinations.
void SchemaMerger::expand(Partial partial, std::vector<SchemaFacts>& out) {
  if (partial.facts.never()) return;
  if (partial.num_tried == partial.groups.size()) {
    if (out.size() >= kMostAlternatives)
      document_.refuse(
          partial.facts.place,
          fmt::format("more than {} alternatives of anyOf, oneOf and dependent members", kMostAlternatives));
    if (partial.has_complement && (partial.facts.no_other_items || partial.facts.no_other_members))
      document_.refuse(
          partial.facts.place,
          "unevaluatedItems, unevaluatedProperties: not supported beside a schema that is excluded");
    builder_.spend(kWorkOfKept * size_of(partial));
    out.push_back(std::move(partial.facts));
    return;
  }
  if (partial.num_tried >= kMostGroups)
    document_.refuse(
        partial.facts.place,
        fmt::format("more than {} times anyOf, oneOf or dependent members for one value", kMostGroups));
  const Group group = partial.groups[partial.num_tried++];
  const size_t first = out.size();
  const std::vector<size_t> ends = expand_branches(partial, group, {}, out);
  if (group.kind != GroupKind::one || nesting_ > 0) return;
  const BranchPairs overlaps = overlapping_branches(out, ends, first);
  if (overlaps.empty()) return;
  out.erase(out.begin() + static_cast<ptrdiff_t>(first), out.end());
  expand_branches(partial, group, overlaps, out);
}

/// Each branch with all that holds besides, and without what is valid by the second of a pair where it is the first. What a branch adds is
/// in `out` up to the end that is returned for it.
std::vector<size_t> SchemaMerger::expand_branches(const Partial& partial, const Group& group,
                                                  const BranchPairs& exclusive,
                                                  std::vector<SchemaFacts>& out) {
  std::vector<size_t> ends;
  for (size_t branch = 0; branch < group.branches->size(); ++branch) {
    Partial with_branch = partial;
    builder_.spend(kWorkOfCopy * size_of(partial));
    for (const Place schema : (*group.branches)[branch])
      merge(with_branch, schema, group.origin);
    for (const auto& [holds, excluded] : exclusive) {
      if (holds == branch) exclude_branch(with_branch, group, branch, excluded);
    }
    if (group.kind == GroupKind::pruned || !exclusive.empty()) drop_contradiction(with_branch.facts);
    expand(std::move(with_branch), out);
    ends.push_back(out.size());
  }
  return ends;
}

SchemaMerger::Place SchemaMerger::followed(Place place) {
  for (int i = 0; i < kMostOrigins; ++i) {
    const Json& schema = document_.at(place);
    if (!schema.is_object()) return place;
    const Json* reference = nullptr;
    for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
      if (name == "$ref") {
        reference = &value;
      } else if (!is_annotation(name)) {
        return place;
      }
    }
    if (reference == nullptr) return place;
    place = document_.resolve(place, *reference);
  }
  return place;  // merge() finds what is wrong with it
}

Schemas SchemaMerger::simplified(const Schemas& schemas) {
  Schemas simple;
  for (const Place place : schemas) {
    const Place target = followed(place);
    if (is_true(document_.at(target)) || std::ranges::find(simple, target) != simple.end()) continue;
    simple.push_back(target);
  }
  return simple;
}

bool SchemaMerger::is_in_pattern(Place schema, const std::string& pattern, const std::string& name) {
  try {
    const auto [known, is_new] = name_patterns_.try_emplace(pattern, -1);
    if (is_new) known->second = regex_texts(builder_, pattern, RegexScope::search, Spelling::plain);
    return has_text(builder_, known->second, name);
  } catch (const GrammarError& error) {
    document_.refuse(schema, fmt::format("patternProperties: {}", error.what()));
  }
}

Schemas SchemaMerger::member_schemas(const SchemaFacts& facts, const std::string& name) {
  Schemas schemas;
  for (const SchemaFacts::ObjectShape& shape : facts.objects) {
    const Json* declared = shape.properties == nullptr ? nullptr : document_.find(*shape.properties, name);
    bool is_known = declared != nullptr;
    if (is_known) schemas.push_back(document_.part(shape.place, "properties", name, *declared));
    if (shape.patterns != nullptr) {
      for (const auto& [pattern, schema] : shape.patterns->get_ref<const Json::object_t&>()) {
        if (!is_in_pattern(shape.place, pattern, name)) continue;
        is_known = true;
        schemas.push_back(document_.part(shape.place, "patternProperties", pattern, schema));
      }
    }
    if (!is_known && shape.additional != nullptr)
      schemas.push_back(document_.part(shape.place, "additionalProperties", *shape.additional));
  }
  return schemas;
}

}  // namespace minfer
