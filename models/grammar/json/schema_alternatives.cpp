#include <fmt/format.h>

#include "models/grammar/json/schema_merger.h"

namespace minfer {

// Keywords that say that one of several schemas holds.

Schemas SchemaMerger::parts_of(const Keyword& keyword) {
  expect(keyword.value.is_array() && !keyword.value.empty(), keyword, "an array of schemas, not empty,");
  Schemas parts;
  for (const Json& schema : keyword.value)
    parts.push_back(document_.part(keyword.place, keyword.name, parts.size(), schema));
  return parts;
}

void SchemaMerger::add_group(Partial& partial, const Keyword& keyword) {
  const auto [known, is_new] = branches_.try_emplace({&keyword.value, std::string(keyword.name)});
  for (const Place part : is_new ? parts_of(keyword) : Schemas())
    known->second.push_back({part});
  const GroupKind kind = keyword.name == "oneOf" ? GroupKind::one : GroupKind::any;
  partial.groups.push_back({keyword.place, &known->second, kind, keyword.origin});
}

SchemaMerger::Place SchemaMerger::made(Place parent, std::string_view name, Json schema) {
  made_.push_back(std::move(schema));
  return document_.part(parent, name, made_.back());
}

SchemaMerger::Place SchemaMerger::with_member(const Keyword& keyword, const std::string& name) {
  Json present = Json::object();
  present["type"] = "object";
  present["required"] = Json::array({name});
  return made(keyword.place, keyword.name, std::move(present));
}

SchemaMerger::Place SchemaMerger::without_member(const Keyword& keyword, const std::string& name) {
  Json absent = Json::object();
  absent["properties"][name] = false;
  return made(keyword.place, keyword.name, std::move(absent));
}

bool SchemaMerger::lists_dependents(const Keyword& keyword, const Json& dependent) {
  return keyword.name == "dependentRequired" || (keyword.name == "dependencies" && dependent.is_array());
}

/// For each name: either there is no such member, or there is one and its dependents hold. Older drafts call both "dependencies".
void SchemaMerger::add_dependents(Partial& partial, const Keyword& keyword) {
  expect(keyword.value.is_object(), keyword, "an object");
  for (const auto& [name, dependent] : keyword.value.get_ref<const Json::object_t&>()) {
    const auto [known, is_new] = branches_.try_emplace({&dependent, std::string(keyword.name)});
    if (is_new) {
      const Place what = lists_dependents(keyword, dependent)
                             ? made(keyword.place, keyword.name, {{"required", dependent}})
                             : document_.part(keyword.place, keyword.name, name, dependent);
      known->second = {{without_member(keyword, name)}, {with_member(keyword, name), what}};
    }
    partial.groups.push_back({keyword.place, &known->second, GroupKind::any, keyword.origin});
  }
}

std::optional<SchemaMerger::Place> SchemaMerger::sibling(const Keyword& keyword, const std::string& name) {
  const Json* found = document_.find(document_.at(keyword.place), name);
  if (found == nullptr) return std::nullopt;
  return document_.part(keyword.place, name, *found);
}

/// Tried before groups that are there already: what it contradicts is found before there are combinations of it with others.
void SchemaMerger::add_pruned(Partial& partial, Place place, const std::vector<Schemas>& branches,
                              int origin) {
  if (branches.empty()) partial.facts.types = 0;
  if (branches.size() == 1) {
    for (const Place schema : branches.front())
      merge(partial, schema, origin);
  } else if (branches.size() > 1) {
    const auto next = partial.groups.begin() + static_cast<ptrdiff_t>(partial.num_tried);
    partial.groups.insert(next, {place, &branches, GroupKind::pruned, origin});
  }
}

/// "if" holds and "then", or it does not and "else" holds.
void SchemaMerger::add_condition(Partial& partial, const Keyword& keyword) {
  const std::optional<Place> then = sibling(keyword, "then"), otherwise = sibling(keyword, "else");
  if (!then && !otherwise) return;
  const auto [known, is_new] = branches_.try_emplace({&keyword.value, std::string(keyword.name)});
  if (is_new) {
    const Place condition = document_.part(keyword.place, keyword.name, keyword.value);
    Schemas holds{condition}, fails{complement(condition)};
    if (then) holds.push_back(*then);
    if (otherwise) fails.push_back(*otherwise);
    known->second = {holds, fails};
  }
  add_pruned(partial, keyword.place, known->second, keyword.origin);
}

}  // namespace minfer
