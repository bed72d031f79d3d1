#include <algorithm>

#include <fmt/format.h>

#include "models/grammar/json/schema_merger.h"

namespace minfer {
namespace {

constexpr size_t kWorkOfComparison = 200;
constexpr int kMostNesting = 4;  // of members that are looked at to tell objects apart

bool are_apart(const SchemaFacts::Counts& a, const SchemaFacts::Counts& b) {
  return (a.max >= 0 && a.max < b.min) || (b.max >= 0 && b.max < a.min);
}

bool is_below(const SchemaFacts::Limit& max, const SchemaFacts::Limit& min) {
  if (max.number == nullptr || min.number == nullptr) return false;
  const auto high = max.number->get<long double>();
  const auto low = min.number->get<long double>();
  return high < low || (high == low && (max.excluded || min.excluded));
}

/// Whether no value of the list is within the facts; containers are taken to be.
bool excludes_values(const std::vector<const SchemaDocument::Json*>& values, const SchemaFacts& facts) {
  return std::ranges::none_of(values, [&](const SchemaDocument::Json* value) {
    return value->is_structured() ? (facts.types & type_of(*value)) != 0 : admits_scalar(facts, *value);
  });
}

}  // namespace

/// Counted as work: values may be large, and are compared with many others.
std::string SchemaMerger::identity(const Json& value) const {
  std::string identity = identity_of(value);
  builder_.spend(identity.size());
  return identity;
}

std::unordered_set<std::string> SchemaMerger::identities(const std::vector<const Json*>& values) const {
  std::unordered_set<std::string> identities;
  for (const Json* value : values)
    identities.insert(identity(*value));
  return identities;
}

bool SchemaMerger::have_disjoint_values(const SchemaFacts& a, const SchemaFacts& b) const {
  if (a.values && b.values) {
    const std::unordered_set<std::string> known = identities(*a.values);
    return std::ranges::none_of(*b.values,
                                [&](const Json* value) { return known.contains(identity(*value)); });
  }
  return (a.values && excludes_values(*a.values, b)) || (b.values && excludes_values(*b.values, a));
}

/// What can be shown without looking at texts: types, values, limits, and members of which one has to be there.
bool SchemaMerger::are_disjoint(const SchemaFacts& a, const SchemaFacts& b) {
  builder_.spend(kWorkOfComparison + (a.values ? a.values->size() : 0) + (b.values ? b.values->size() : 0));
  if (have_disjoint_values(a, b)) return true;
  const JsonTypes shared = a.types & b.types;
  if ((shared & (kNull | kBoolean)) != 0) return false;
  if ((shared & (kInteger | kFraction)) != 0 && !is_below(a.max, b.min) && !is_below(b.max, a.min))
    return false;
  if ((shared & kString) != 0 && !are_apart(a.length, b.length)) return false;
  if ((shared & kArray) != 0 && !are_apart(a.items, b.items)) return false;
  return (shared & kObject) == 0 || are_apart(a.members, b.members) || have_disjoint_members(a, b) ||
         have_disjoint_members(b, a);
}

/// Whether a member that `a` requires is never the same in `b`.
bool SchemaMerger::have_disjoint_members(const SchemaFacts& a, const SchemaFacts& b) {
  if (nesting_ >= kMostNesting) return false;
  ++nesting_;
  const auto differs = [&](const std::string& name) {
    const std::vector<SchemaFacts> in_a = alternatives(simplified(member_schemas(a, name)));
    const std::vector<SchemaFacts> in_b = alternatives(simplified(member_schemas(b, name)));
    return std::ranges::all_of(in_a, [&](const SchemaFacts& x) {
      return std::ranges::all_of(in_b, [&](const SchemaFacts& y) { return are_disjoint(x, y); });
    });
  };
  const bool found = std::ranges::any_of(a.required, differs);
  --nesting_;
  return found;
}

/// `facts` from `first` on are those of the group's branches, which end at `branch_ends`.
void SchemaMerger::refuse_overlap(const Group& group, const std::vector<SchemaFacts>& facts,
                                  const std::vector<size_t>& branch_ends, size_t first) {
  size_t begin = first;
  for (size_t branch = 0; branch < branch_ends.size(); ++branch) {
    for (size_t i = begin; i < branch_ends[branch]; ++i) {
      for (size_t other = branch_ends[branch]; other < branch_ends.back(); ++other) {
        if (are_disjoint(facts[i], facts[other])) continue;
        const auto number = std::ranges::upper_bound(branch_ends, other) - branch_ends.begin();
        document_.refuse(group.place,
                         fmt::format("oneOf: [{}] and [{}] cannot be shown to exclude each other: "
                                     "give a required member different constants, or use anyOf",
                                     branch, number));
      }
    }
    begin = branch_ends[branch];
  }
}

}  // namespace minfer
