#include <algorithm>
#include <unordered_set>

#include "models/grammar/automaton/nfa.h"
#include "models/grammar/json/schema_writer.h"

namespace minfer {

// Decides if a value that a schema lists is allowed by the schemas beside it.

bool SchemaWriter::admits(const Schemas& schemas, const Json& value) {
  const std::vector<SchemaFacts> alternatives = merger_.alternatives(merger_.simplified(schemas));
  return std::ranges::any_of(alternatives, [&](const SchemaFacts& facts) { return admits(facts, value); });
}

/// Recursion as deep as the value: SchemaDocument::kMostLevels.
bool SchemaWriter::admits(const SchemaFacts& facts, const Json& value) {
  if (!admits_scalar(facts, value)) return false;
  if (facts.values) {
    const std::string identity = identity_of(value);
    const auto is_same = [&](const Json* listed) { return identity_of(*listed) == identity; };
    if (std::ranges::none_of(*facts.values, is_same)) return false;
  }
  if (value.is_object()) return admits_members(facts, value);
  if (value.is_array()) return admits_items(facts, value);
  if (!value.is_string() || !restricts_text(facts)) return true;
  return has_text(builder_, restricted_text(facts), JsonText::escaped(value.get_ref<const std::string&>()));
}

bool SchemaWriter::admits_items(const SchemaFacts& facts, const Json& array) {
  if (!facts.items.hold(array.size())) return false;
  std::unordered_set<std::string> known;
  for (const Json& item : array) {
    if (facts.unique_items && !known.insert(identity_of(item)).second) return false;
  }
  for (size_t i = 0; i < array.size(); ++i) {
    const auto schemas = item_schemas(facts, i);
    if (!schemas || !admits(*schemas, array[i])) return false;
  }
  return true;
}

bool SchemaWriter::admits_members(const SchemaFacts& facts, const Json& object) {
  const auto has = [&](const std::string& name) { return object.contains(name); };
  builder_.spend(facts.required.size() * object.size());
  if (!facts.members.hold(object.size()) || !std::ranges::all_of(facts.required, has)) return false;
  return std::ranges::all_of(object.get_ref<const Json::object_t&>(), [&](const auto& member) {
    if (!facts.names.empty() && !admits(facts.names, Json(member.first))) return false;
    const Schemas schemas = merger_.member_schemas(facts, member.first);
    return !(facts.no_other_members && schemas.empty()) && admits(schemas, member.second);
  });
}

}  // namespace minfer
