// Filters over lists, dicts and other things with elements.
#include <algorithm>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/filter_table.h"
#include "models/chat/jinja/value/access.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

/// The elements as something that gives them once.
Value generate(const Value& elements) {
  return Value(std::static_pointer_cast<Object>(iterate(elements)));
}

Value ignore_case(Value value) {
  const Text* text = value.text();
  if (text == nullptr) return value;
  Rendering::scan(8 * text->size());
  return Value(to_lower(*text));
}

Value default_filter(const Value& subject, const Arguments& arguments) {
  const Bound bound("default", arguments, {"default_value", "boolean"});
  const bool absent = subject.is_undefined() || (bound.truth(1, false) && !subject.truth());
  if (!absent) return subject;
  return bound.has(0) ? bound[0] : make_text("");
}

Value attr(const Value& subject, const Arguments& arguments) {
  const Bound bound("attr", arguments, {"name"}, 1);
  // Attributes alone: without its keys a dict has just the methods.
  const Value bare = subject.dict() != nullptr ? make_dict({}) : subject;
  return get_attribute(bare, bound.text(0).bytes());
}

Value first(const Value& subject, const Arguments& arguments) {
  Bound("first", arguments, {});
  const std::optional<Value> item = iterate(subject)->next();
  return item ? *item : Value::undefined("no first item, the sequence was empty");
}

/// Python's reversed(): nothing if the value has no order to go back through.
std::optional<Value> reversed(const Value& value) {
  if (value.object_as<Iterator>() != nullptr || !is_iterable(value)) return std::nullopt;
  Items items = to_items(value);
  std::ranges::reverse(items);
  return generate(make_list(std::move(items)));
}

Value last(const Value& subject, const Arguments& arguments) {
  Bound("last", arguments, {});
  const std::optional<Value> items = reversed(subject);
  if (!items) fail<TemplateError>("last: '{}' cannot be reversed", subject.type_name());
  const std::optional<Value> item = iterate(*items)->next();
  return item ? *item : Value::undefined("no last item, the sequence was empty");
}

Value reverse(const Value& subject, const Arguments& arguments) {
  Bound("reverse", arguments, {});
  if (subject.text() != nullptr) return get_slice(subject, Value(), Value(), Value(int64_t{-1}));
  if (const std::optional<Value> items = reversed(subject)) return *items;
  Items items = to_items(subject);
  std::ranges::reverse(items);
  return make_list(std::move(items));
}

Value list(const Value& subject, const Arguments& arguments) {
  Bound("list", arguments, {});
  return make_list(to_items(subject));
}

Value join(const Value& subject, const Arguments& arguments) {
  const Bound bound("join", arguments, {"d", "attribute"});
  const AttributePath path(bound[1]);
  const Text separator = bound.has(0) ? to_text(bound[0]) : Text();
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  Text out;
  bool any = false;
  while (std::optional<Value> item = iterator->next()) {
    if (any) out.append(separator);
    any = true;
    print(out, path.read(*std::move(item)));
  }
  return Value(std::move(out));
}

struct Keyed {
  Value key;
  Value item;
};

/// Sorted by key, equal ones in the order they came.
Items sort_by_key(Vector<Keyed> keyed, bool descending) {
  const auto before = [&](const Keyed& a, const Keyed& b) {
    return descending ? ordered(b.key, "<", a.key) : ordered(a.key, "<", b.key);
  };
  std::ranges::stable_sort(keyed, before);
  Items items;
  for (Keyed& entry : keyed)
    items.push_back(std::move(entry.item));
  return items;
}

/// Attributes separated by commas; sort compares by all of them.
Vector<AttributePath> read_paths(const Value& attribute) {
  const Text* names = attribute.text();
  if (names == nullptr) return {AttributePath(attribute)};
  Vector<AttributePath> paths;
  std::string_view rest = names->bytes();
  while (true) {
    const size_t comma = std::min(rest.find(','), rest.size());
    paths.emplace_back(make_text(rest.substr(0, comma)));
    if (comma == rest.size()) return paths;
    rest.remove_prefix(comma + 1);
  }
}

Value sort(const Value& subject, const Arguments& arguments) {
  const Bound bound("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const Vector<AttributePath> paths = read_paths(bound[2]);
  const bool case_sensitive = bound.truth(1, false);
  Vector<Keyed> keyed;
  for (Value& item : to_items(subject)) {
    Items keys;
    for (const AttributePath& path : paths) {
      Value key = path.read(item);
      keys.push_back(case_sensitive ? key : ignore_case(std::move(key)));
    }
    keyed.push_back({make_list(std::move(keys)), std::move(item)});
  }
  return make_list(sort_by_key(std::move(keyed), bound.truth(0, false)));
}

Value dictsort(const Value& subject, const Arguments& arguments) {
  const Bound bound("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  subject.require_defined();
  if (subject.dict() == nullptr) fail<TemplateError>("dictsort: '{}', expected a dict", subject.type_name());
  const std::string_view by = bound.has(1) ? std::string_view(bound.text(1).bytes()) : "key";
  if (by != "key" && by != "value") fail<TemplateError>("dictsort: by '{}', expected key or value", by);
  Vector<Keyed> keyed;
  for (const auto& [key, value] : subject.dict()->entries()) {
    Value sort_key = by == "key" ? key : value;
    if (!bound.truth(0, false)) sort_key = ignore_case(std::move(sort_key));
    keyed.push_back({std::move(sort_key), make_tuple({key, value})});
  }
  return make_list(sort_by_key(std::move(keyed), bound.truth(2, false)));
}

Value items_filter(const Value& subject, const Arguments& arguments) {
  Bound("items", arguments, {});
  const Value dict = subject.is_undefined() ? make_dict({}) : subject;
  if (dict.dict() == nullptr) fail<TemplateError>("items: '{}', expected a dict", subject.type_name());
  return generate(make_dict_view(dict, ViewKind::items));
}

Value unique(const Value& subject, const Arguments& arguments) {
  const Bound bound("unique", arguments, {"case_sensitive", "attribute"});
  return make_generator(
      [iterator = iterate(subject), path = AttributePath(bound[1]), case_sensitive = bound.truth(0, false),
       seen = Dict()]() mutable -> std::optional<Value> {
        while (std::optional<Value> item = iterator->next()) {
          Value key = path.read(*item);
          if (!case_sensitive) key = ignore_case(std::move(key));
          const size_t before = seen.size();
          Rendering::step();
          seen.set(std::move(key), Value());
          if (seen.size() > before) return item;
        }
        return std::nullopt;
      },
      subject.depth());
}

Value extreme(const Value& subject, const Arguments& arguments, std::string_view operation) {
  const Bound bound("min or max", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(bound[1]);
  std::optional<Keyed> best;
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  while (std::optional<Value> item = iterator->next()) {
    Value key = path.read(*item);
    if (!bound.truth(0, false)) key = ignore_case(std::move(key));
    if (!best || ordered(key, operation, best->key)) best = Keyed{std::move(key), *std::move(item)};
  }
  return best ? best->item : Value::undefined("no aggregated item, the sequence was empty");
}

Value min(const Value& subject, const Arguments& arguments) {
  return extreme(subject, arguments, "<");
}
Value max(const Value& subject, const Arguments& arguments) {
  return extreme(subject, arguments, ">");
}

Value groupby(const Value& subject, const Arguments& arguments) {
  const Bound bound("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(bound[0]);
  const bool case_sensitive = bound.truth(2, false);
  const auto key_of = [&](const Value& item, bool fold) {
    Value key = path.read(item, bound[1]);
    return fold ? ignore_case(std::move(key)) : key;
  };
  Vector<Keyed> keyed;
  for (Value& item : to_items(subject)) {
    Value key = key_of(item, !case_sensitive);
    keyed.push_back({std::move(key), std::move(item)});
  }
  const Items sorted = sort_by_key(std::move(keyed), false);
  Items groups;
  for (size_t begin = 0, end = 0; begin < sorted.size(); begin = end) {
    const Value key = key_of(sorted[begin], !case_sensitive);
    while (end < sorted.size() && equals(key, key_of(sorted[end], !case_sensitive)))
      ++end;
    Items members(sorted.begin() + static_cast<std::ptrdiff_t>(begin),
                  sorted.begin() + static_cast<std::ptrdiff_t>(end));
    groups.push_back(make_group(key_of(sorted[begin], false), make_list(std::move(members))));
  }
  return make_list(std::move(groups));
}

Value batch(const Value& subject, const Arguments& arguments) {
  const Bound bound("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t size = bound.integer(0, 1);
  Items rows;
  Items row;
  for (Value& item : to_items(subject)) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(make_list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  const auto filled = static_cast<int64_t>(row.size());
  if (!row.empty() && !bound[1].is_none() && filled < size) {
    const auto missing = static_cast<size_t>(size - filled);
    Rendering::require(missing > SIZE_MAX / sizeof(Value) ? SIZE_MAX : missing * sizeof(Value));
    row.insert(row.end(), missing, bound[1]);
  }
  if (!row.empty()) rows.push_back(make_list(std::move(row)));
  return generate(make_list(std::move(rows)));
}

Value slice(const Value& subject, const Arguments& arguments) {
  const Bound bound("slice", arguments, {"slices", "fill_with"}, 1);
  const int64_t slices = bound.integer(0, 1);
  if (slices == 0) fail<TemplateError>("slice into 0 slices, expected at least 1");
  const Items items = to_items(subject);
  Items rows;
  auto from = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    Rendering::step();
    const auto length = static_cast<int64_t>(items.size());
    const bool extra = i < length % slices;
    const auto to = from + length / slices + (extra ? 1 : 0);
    Items row(from, to);
    if (!bound[1].is_none() && !extra) row.push_back(bound[1]);
    rows.push_back(make_list(std::move(row)));
    from = to;
  }
  return generate(make_list(std::move(rows)));
}

}  // namespace

FilterEntries sequence_filters() {
  return {{"default", default_filter},
          {"d", default_filter},
          {"attr", attr},
          {"first", first},
          {"last", last},
          {"reverse", reverse},
          {"list", list},
          {"join", join},
          {"sort", sort},
          {"dictsort", dictsort},
          {"items", items_filter},
          {"unique", unique},
          {"min", min},
          {"max", max},
          {"groupby", groupby},
          {"batch", batch},
          {"slice", slice}};
}

}  // namespace minfer::jinja
