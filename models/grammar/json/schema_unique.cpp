#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "models/grammar/json/schema_writer.h"

namespace minfer {
namespace {

constexpr size_t kMostValues = 64;     // a bit each
constexpr size_t kMostSubsets = 4096;  // 12 values, or fewer of more where maxItems says so

}  // namespace

// "uniqueItems" of items that are listed: what may come next depends on which have been there.

/// The values that the item may have, one of each that are equal; empty: they are not listed.
std::optional<std::vector<const SchemaWriter::Json*>> SchemaWriter::listed_items(const SchemaFacts& facts,
                                                                                 size_t index) {
  static const std::vector<Json> kAlways{nullptr, true, false};
  std::vector<const Json*> listed;
  const auto schemas = item_schemas(facts, index);
  if (!schemas) return listed;
  for (const SchemaFacts& item : merger_.alternatives(merger_.simplified(*schemas))) {
    if (!item.values && (item.types & ~(kNull | kBoolean)) != 0) return std::nullopt;
    std::vector<const Json*> values;
    for (const Json& value : kAlways)
      values.push_back(&value);
    if (item.values) values = *item.values;
    for (const Json* value : values) {
      if (!admits(item, *value)) continue;
      const std::string identity = identity_of(*value);
      builder_.spend(identity.size() * (1 + listed.size()));
      const auto is_same = [&](const Json* known) { return identity_of(*known) == identity; };
      if (std::ranges::none_of(listed, is_same)) listed.push_back(value);
      if (listed.size() > kMostValues) return std::nullopt;
    }
  }
  return listed;
}

/// A rule for what follows each set of values that have been there.
SchemaWriter::Expr SchemaWriter::different_items(const SchemaFacts& facts) {
  const auto refuse = [&](std::string_view what) {
    document_.refuse(*facts.unique_items, fmt::format("uniqueItems: {}", what));
  };
  std::vector<std::string> identities;  // of the values, whose numbers they are
  std::vector<std::vector<std::pair<size_t, Expr>>> at_place;
  const auto values_at = [&](size_t index) -> const std::vector<std::pair<size_t, Expr>>& {
    while (at_place.size() <= index) {
      const auto listed = listed_items(facts, at_place.size());
      if (!listed) refuse("true is only supported for items of enum, const or boolean");
      auto& values = at_place.emplace_back();
      for (const Json* value : *listed) {
        const std::string identity = identity_of(*value);
        const auto number = static_cast<size_t>(std::ranges::find(identities, identity) - identities.begin());
        if (number == identities.size()) identities.push_back(identity);
        if (number >= kMostValues)
          refuse(fmt::format("true is only supported for at most {} values", kMostValues));
        values.emplace_back(number, text_.constant(*value));
      }
    }
    return at_place[index];
  };

  const auto [min, max] = facts.items;
  std::map<uint64_t, Expr> following{{0, builder_.nothing()}};  // by the values that have been there
  std::vector<std::vector<uint64_t>> sets{{0}};                 // by their size
  for (size_t size = 0; !sets[size].empty() && (max < 0 || static_cast<int64_t>(size) < max); ++size) {
    std::vector<uint64_t> larger;
    for (const uint64_t set : sets[size]) {
      for (const auto& [number, text] : values_at(size)) {
        const uint64_t next = set | uint64_t{1} << number;
        if (next == set || !following.emplace(next, builder_.nothing()).second) continue;
        larger.push_back(next);
        if (following.size() > kMostSubsets)
          refuse(
              fmt::format("true is only supported where there are at most {} sets of values", kMostSubsets));
      }
    }
    sets.push_back(std::move(larger));
  }
  for (size_t size = sets.size(); size-- > 0;) {
    for (const uint64_t set : sets[size]) {
      std::vector<Expr> choices;
      if (static_cast<int64_t>(size) >= min) choices.push_back(builder_.empty());
      const bool may_go_on = size + 1 < sets.size();
      for (size_t i = 0; may_go_on && i < at_place[size].size(); ++i) {
        const auto [number, text] = at_place[size][i];
        const uint64_t next = set | uint64_t{1} << number;
        if (next != set)
          choices.push_back(builder_.sequence({size == 0 ? text : text_.next(text), following.at(next)}));
      }
      const GrammarBuilder::Rule rule = builder_.add_rule("different items");
      builder_.define(rule, builder_.choice(choices));
      following[set] = builder_.reference(rule);
    }
  }
  return text_.enclosed('[', following.at(0), ']');
}

}  // namespace minfer
