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

/// True if no value of the list satisfies the facts; containers count as satisfying them.
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

/// True if that can be shown without looking at texts: by types, values, limits, and required members.
bool SchemaMerger::are_disjoint(const SchemaFacts& a, const SchemaFacts& b) {
  builder_.spend(kWorkOfComparison + (a.values ? a.values->size() * (1 + b.excluded.size()) : 0) +
                 (b.values ? b.values->size() * (1 + a.excluded.size()) : 0));
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

/// True if a member that `a` requires can never be the same in `b`.
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

/// Leaves objects out where a member that is required cannot be there. Not all contradictions are found: what is left has no text.
void SchemaMerger::drop_contradiction(SchemaFacts& facts) {
  if (nesting_ >= kMostNesting || (facts.types & kObject) == 0) return;
  ++nesting_;
  const bool found = std::ranges::any_of(facts.required, [&](const std::string& name) {
    const Schemas schemas = simplified(member_schemas(facts, name));
    if (schemas.size() < 2) return false;
    const auto known = contradictions_.find(schemas);
    if (known != contradictions_.end()) return known->second;
    const std::vector<SchemaFacts> alternatives = this->alternatives(schemas);
    const bool has_none = std::ranges::all_of(alternatives, [&](const SchemaFacts& member) {
      if (!member.values) return false;
      builder_.spend(kWorkOfComparison + member.values->size() * (1 + member.excluded.size()));
      return excludes_values(*member.values, member);
    });
    return contradictions_.emplace(schemas, has_none).first->second;
  });
  --nesting_;
  if (found) facts.types &= ~kObject;
}

/// Pairs of branches, in both orders, that may both hold for one value. `facts` from `first` on are those of the branches, which end at
/// `branch_ends`.
SchemaMerger::BranchPairs SchemaMerger::overlapping_branches(const std::vector<SchemaFacts>& facts,
                                                             const std::vector<size_t>& branch_ends,
                                                             size_t first) {
  const auto begin_of = [&](size_t branch) { return branch == 0 ? first : branch_ends[branch - 1]; };
  BranchPairs pairs;
  for (size_t branch = 0; branch < branch_ends.size(); ++branch) {
    for (size_t other = branch + 1; other < branch_ends.size(); ++other) {
      bool overlap = false;
      for (size_t i = begin_of(branch); i < branch_ends[branch] && !overlap; ++i) {
        for (size_t k = begin_of(other); k < branch_ends[other] && !overlap; ++k)
          overlap = !are_disjoint(facts[i], facts[k]);
      }
      if (!overlap) continue;
      pairs.emplace_back(branch, other);
      pairs.emplace_back(other, branch);
    }
  }
  return pairs;
}

void SchemaMerger::exclude_branch(Partial& partial, const Group& group, size_t branch, size_t excluded) {
  try {
    merge(partial, complement((*group.branches)[excluded].front()), group.origin);
  } catch (const GrammarError& error) {
    document_.refuse(
        group.place,
        fmt::format("oneOf: [{}] and [{}] cannot be shown to exclude each other: give a required "
                    "member different constants, or use anyOf ({})",
                    std::min(branch, excluded), std::max(branch, excluded), error.what()));
  }
}

}  // namespace minfer
