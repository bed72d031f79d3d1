#include <algorithm>
#include <unordered_set>

#include <fmt/format.h>

#include "models/grammar/grammar_builder.h"
#include "models/grammar/json/schema_writer.h"

namespace minfer {
namespace {

constexpr size_t kMostNestedItems = 200;  // expressions within each other, before a rule is put in between
constexpr size_t kMostPatterns = 4;
constexpr size_t kMostCounted = 20'000;  // listed members, times what is counted of them

}  // namespace

/// Empty: there is no such item.
std::optional<Schemas> SchemaWriter::item_schemas(const SchemaFacts& facts, size_t index) {
  Schemas schemas;
  for (const SchemaFacts::ArrayShape& shape : facts.arrays) {
    const bool has_list = shape.list != nullptr;
    const Json* const prefix = has_list ? shape.list : shape.prefix;
    const Json* const others = has_list ? shape.additional : shape.items;
    if (prefix != nullptr && index < prefix->size()) {
      schemas.push_back(
          document_.part(shape.place, has_list ? "items" : "prefixItems", index, (*prefix)[index]));
    } else if (others != nullptr) {
      schemas.push_back(document_.part(shape.place, has_list ? "additionalItems" : "items", *others));
    }
  }
  if (schemas.empty() && facts.no_other_items) return std::nullopt;
  return schemas;
}

SchemaWriter::Expr SchemaWriter::array(const SchemaFacts& facts) {
  const auto [min, max] = facts.items;
  if (facts.unique_items && (max < 0 || max > 1)) return different_items(facts);
  if (facts.arrays.empty() && !facts.no_other_items && min == 0 && max < 0) return text_.array();
  size_t num_listed = 0;
  for (const SchemaFacts::ArrayShape& shape : facts.arrays) {
    for (const Json* prefix : {shape.prefix, shape.list}) {
      if (prefix != nullptr) num_listed = std::max(num_listed, prefix->size());
    }
  }
  if (max >= 0) num_listed = std::min(num_listed, static_cast<size_t>(max));
  const auto item_at = [&](size_t index) {
    const auto schemas = item_schemas(facts, index);
    return schemas ? value(*schemas) : builder_.nothing();
  };
  std::vector<Expr> prefix;
  for (size_t i = 0; i < num_listed; ++i)
    prefix.push_back(item_at(i));
  const Expr others = item_at(num_listed);
  return text_.enclosed('[', items(prefix, others, min, max), ']');
}

/// The items of `prefix`, then others; `min` to `max` in all.
SchemaWriter::Expr SchemaWriter::items(const std::vector<Expr>& prefix, Expr others, int64_t min,
                                       int64_t max) {
  if (prefix.empty()) return text_.list(others, min, max);
  const auto size = static_cast<int64_t>(prefix.size());
  const int64_t most_others = max < 0 ? -1 : std::max<int64_t>(0, max - size);
  Expr rest = builder_.repeat(text_.next(others), std::max<int64_t>(0, min - size), most_others);
  for (size_t i = prefix.size(); i-- > 1;) {
    rest = builder_.sequence({text_.next(prefix[i]), rest});
    if (static_cast<int64_t>(i) >= min) rest = builder_.optional(rest);
    if (i % kMostNestedItems == 0) {
      const GrammarBuilder::Rule rule = builder_.add_rule("items");
      builder_.define(rule, rest);
      rest = builder_.reference(rule);
    }
  }
  const Expr all = builder_.sequence({prefix.front(), rest});
  return min == 0 ? builder_.optional(all) : all;
}

/// Names in the order of objects: declared ones, then those that are required only.
std::vector<std::string> SchemaWriter::listed_names(const SchemaFacts& facts) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  const auto add = [&](const std::string& name) {
    if (known.insert(name).second) names.push_back(name);
  };
  for (const SchemaFacts::ObjectShape& shape : facts.objects) {
    if (shape.properties == nullptr) continue;
    for (const auto& [name, schema] : shape.properties->get_ref<const Json::object_t&>())
      add(name);
  }
  for (const std::string& name : facts.required)
    add(name);
  return names;
}

SchemaWriter::Expr SchemaWriter::object(const SchemaFacts& facts) {
  const auto [min, max] = facts.members;
  if (facts.objects.empty() && facts.required.empty() && facts.names.empty() && !facts.no_other_members &&
      min == 0 && max < 0)
    return text_.object();
  const std::vector<std::string> names = listed_names(facts);
  const std::unordered_set<std::string> required(facts.required.begin(), facts.required.end());
  const Expr allowed = facts.names.empty() ? builder_.nothing() : name_texts(facts.names);
  std::vector<Member> listed;
  for (const std::string& name : names) {
    Expr key = builder_.literal(JsonText::escaped(name));
    if (!facts.names.empty()) key = builder_.both(key, allowed);
    const Schemas schemas = merger_.member_schemas(facts, name);
    if (facts.no_other_members && schemas.empty()) key = builder_.nothing();
    listed.push_back({text_.member(text_.quoted(key), value(schemas)), required.contains(name)});
  }
  return text_.enclosed('{', members(facts, listed, other_members(facts, names)), '}');
}

/// The texts of names, within the quotes: strings that satisfy the schemas.
SchemaWriter::Expr SchemaWriter::name_texts(const Schemas& schemas) {
  std::vector<Expr> choices;
  for (const SchemaFacts& facts : merger_.alternatives(merger_.simplified(schemas))) {
    if ((facts.types & kString) == 0) continue;
    Expr text = restricted_text(facts);
    if (facts.values) {
      std::vector<std::string> values;
      for (const Json* value : *facts.values) {
        if (value->is_string()) values.push_back(JsonText::escaped(value->get_ref<const std::string&>()));
      }
      text = builder_.both(text, one_of(builder_, values));
    }
    choices.push_back(text);
  }
  return builder_.choice(choices);
}

/// A member of a name that is not listed. Which schemas hold for it depends on the patterns that the name matches: one alternative
/// for each set of them.
SchemaWriter::Expr SchemaWriter::other_members(const SchemaFacts& facts,
                                               const std::vector<std::string>& listed) {
  std::vector<std::string> keys;
  for (const std::string& name : listed)
    keys.push_back(JsonText::escaped(name));
  Expr names = builder_.minus(builder_.any_number(text_.plain_character()), one_of(builder_, keys));
  if (!facts.names.empty()) names = builder_.both(names, name_texts(facts.names));

  struct Pattern {
    size_t shape;
    Expr names;
    Place schema;
  };
  std::vector<Pattern> patterns;
  for (size_t i = 0; i < facts.objects.size(); ++i) {
    const SchemaFacts::ObjectShape& shape = facts.objects[i];
    if (shape.patterns == nullptr) continue;
    for (const auto& [pattern, schema] : shape.patterns->get_ref<const Json::object_t&>()) {
      patterns.push_back({i, pattern_texts(shape.place, "patternProperties", pattern),
                          document_.part(shape.place, "patternProperties", pattern, schema)});
    }
  }
  if (patterns.size() > kMostPatterns)
    document_.refuse(facts.place, fmt::format("patternProperties: more than {} patterns", kMostPatterns));

  std::vector<Expr> choices;
  for (uint32_t matched = 0; matched < uint32_t{1} << patterns.size(); ++matched) {
    Expr key = names;
    Schemas schemas;
    bool is_known = false;
    for (size_t i = 0; i < patterns.size(); ++i) {
      const bool matches = (matched >> i & 1) != 0;
      key = matches ? builder_.both(key, patterns[i].names) : builder_.minus(key, patterns[i].names);
      if (matches) schemas.push_back(patterns[i].schema);
      is_known = is_known || matches;
    }
    for (size_t i = 0; i < facts.objects.size(); ++i) {
      const SchemaFacts::ObjectShape& shape = facts.objects[i];
      bool by_pattern = false;
      for (size_t p = 0; p < patterns.size(); ++p)
        by_pattern = by_pattern || (patterns[p].shape == i && (matched >> p & 1) != 0);
      if (by_pattern || shape.additional == nullptr) continue;
      is_known = true;
      schemas.push_back(document_.part(shape.place, "additionalProperties", *shape.additional));
    }
    if (facts.no_other_members && !is_known) continue;
    choices.push_back(text_.member(text_.quoted(key), value(schemas)));
  }
  return builder_.choice(choices);
}

/// The listed members in their order, then any number of others; `min` to `max` in all.
SchemaWriter::Expr SchemaWriter::members(const SchemaFacts& facts, const std::vector<Member>& listed,
                                         Expr others) {
  const auto [min, max] = facts.members;
  if (listed.empty()) return text_.list(others, min, max);
  const auto is_required = [](const Member& member) { return member.required; };
  const bool has_others = builder_.node(others).kind != GrammarBuilder::Kind::nothing;
  const auto num_required = std::ranges::count_if(listed, is_required);
  const bool max_holds = max < 0 || (!has_others && max >= static_cast<int64_t>(listed.size()));
  const bool min_holds = min <= std::max<int64_t>(1, num_required);
  if (!max_holds || !min_holds) return counted_members(facts, listed, others);

  const Expr more = builder_.any_number(text_.next(others));
  const auto first = std::ranges::find_if(listed, is_required);
  const std::span all(listed);
  if (first != listed.end()) {
    const auto size = static_cast<size_t>(first - listed.begin()) + 1;
    return builder_.sequence({first_members(all.first(size)), later_members(all.subspan(size)), more});
  }
  std::vector<Expr> choices{builder_.sequence({first_members(all), more}), builder_.sequence({others, more})};
  if (min == 0) choices.push_back(builder_.empty());
  return builder_.choice(choices);
}

/// Members with a comma before each.
SchemaWriter::Expr SchemaWriter::later_members(std::span<const Member> listed) {
  std::vector<Expr> parts;
  for (const Member& member : listed) {
    const Expr next = text_.next(member.text);
    parts.push_back(member.required ? next : builder_.optional(next));
  }
  return builder_.sequence(parts);
}

/// One of these at least, without a comma before the first. None but the last is required. By halves: what may be the first is followed by
/// the rest of its half and by the other half, so that n members take n log n expressions.
SchemaWriter::Expr SchemaWriter::first_members(std::span<const Member> listed) {
  if (listed.size() == 1) return listed.front().text;
  const auto left = listed.first(listed.size() / 2);
  const auto right = listed.subspan(listed.size() / 2);
  return builder_.choice(
      {builder_.sequence({first_members(left), later_members(right)}), first_members(right)});
}

/// Uses rules for the rest after each number of members.
SchemaWriter::Expr SchemaWriter::counted_members(const SchemaFacts& facts, const std::vector<Member>& listed,
                                                 Expr others) {
  const int64_t min = facts.members.min, max = facts.members.max;  // lambdas capture them
  // Beyond this all counts are alike.
  const auto size = static_cast<int64_t>(listed.size());
  const int64_t most = std::min(size, max < 0 ? min : max);
  if (size * (most + 1) > static_cast<int64_t>(kMostCounted)) {
    document_.refuse(
        facts.place,
        fmt::format("minProperties, maxProperties: {} beside {} declared properties is not supported",
                    max < 0 ? min : max, size));
  }
  const auto after = [&](int64_t count) {  // all that are listed
    const int64_t least = std::max<int64_t>(0, min - count);
    if (max >= 0 && max < count) return builder_.nothing();
    const int64_t greatest = max < 0 ? -1 : max - count;
    return count == 0 ? text_.list(others, least, greatest)
                      : builder_.repeat(text_.next(others), least, greatest);
  };
  std::vector<Expr> following;  // by the count
  for (int64_t count = 0; count <= most + 1; ++count)
    following.push_back(after(count));
  for (size_t i = listed.size(); i-- > 0;) {
    std::vector<Expr> here;
    for (int64_t count = 0; count <= most; ++count) {
      const auto c = static_cast<size_t>(count);
      const Expr text = count == 0 ? listed[i].text : text_.next(listed[i].text);
      const bool counts_on = count < most || max >= 0;
      std::vector<Expr> choices{builder_.sequence({text, following[counts_on ? c + 1 : c]})};
      if (!listed[i].required) choices.push_back(following[c]);
      const GrammarBuilder::Rule rule = builder_.add_rule("properties");
      builder_.define(rule, builder_.choice(choices));
      here.push_back(builder_.reference(rule));
    }
    here.push_back(builder_.nothing());
    following = std::move(here);
  }
  return following.front();
}

}  // namespace minfer
