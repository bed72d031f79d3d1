// Filters over lists, dicts and other things with elements.
#include <algorithm>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/number_format.h"
#include "models/chat/jinja/builtins/operators.h"
#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

/// Where a filter's argument says that the attribute of an element is: "a.b" is b of a, digits are positions. None: the element itself.
Items attribute_path(const Value& attribute) {
  if (attribute.is_none()) return {};
  const Text* text = attribute.text();
  if (text == nullptr) return {attribute};
  Items parts = split(*text, ".", -1, false);
  for (Value& part : parts)
    part = index_or_name(part.text()->bytes());
  return parts;
}

/// An undefined value on the path becomes `absent`, unless that is None.
Value read_path(const Items& path, Value value, const Value& absent = Value()) {
  for (const Value& part : path) {
    value = get_item(value, part);
    if (!absent.is_none() && value.is_undefined()) value = absent;
  }
  return value;
}

/// The elements as something that gives them once.
Value generate(const Value& elements) {
  return Value(iterate(elements));
}

/// The value by which an element is compared.
Value key_of(const Items& path, const Value& item, bool case_sensitive, const Value& absent = Value()) {
  Value key = read_path(path, item, absent);
  if (case_sensitive || key.text() == nullptr) return key;
  Rendering::scan(8 * key.text()->size());
  return Value(to_lower(*key.text()));
}

Value default_filter(const Value& subject, const Bound& given) {
  const bool absent = subject.is_undefined() || (given.truth(1) && !subject.truth());
  return absent ? given.get(0, make_text("")) : subject;
}

Value attr(const Value& subject, const Bound& given) {
  // Attributes alone: without its keys a dict has just the methods.
  return get_attribute(subject.dict() != nullptr ? make_dict({}) : subject, given.text(0).bytes());
}

Value first(const Value& subject, const Bound&) {
  return iterate(subject)->next().value_or(Value::undefined("no first item, the sequence was empty"));
}

Items reversed_items(const Value& value) {
  Items items = to_items(value);
  std::ranges::reverse(items);
  return items;
}

/// Python's reversed() takes it: its elements have an order to go back through.
bool is_reversible(const Value& value) {
  return value.object_as<Iterator>() == nullptr && is_iterable(value);
}

Value last(const Value& subject, const Bound&) {
  if (!is_reversible(subject)) fail<TemplateError>("last: '{}' cannot be reversed", subject.type_name());
  const Items items = reversed_items(subject);
  return items.empty() ? Value::undefined("no last item, the sequence was empty") : items.front();
}

Value reverse(const Value& subject, const Bound&) {
  if (subject.text() != nullptr) return get_slice(subject, Value(), Value(), Value(int64_t{-1}));
  Value items = make_list(reversed_items(subject));
  return is_reversible(subject) ? generate(items) : items;
}

Value list(const Value& subject, const Bound&) {
  return make_list(to_items(subject));
}

Value join(const Value& subject, const Bound& given) {
  const Items path = attribute_path(given[1]);
  const Text separator = given.has(0) ? to_text(given[0]) : Text();
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  Text out;
  for (bool any = false; std::optional<Value> item = iterator->next(); any = true) {
    if (any) out.append(separator);
    print(out, read_path(path, *std::move(item)));
  }
  return Value(std::move(out));
}

struct Keyed {
  Value key;
  Value item;
};

/// Sorted by key, equal ones in the order they came.
void sort_by_key(Vector<Keyed>& keyed, bool descending) {
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    return descending ? ordered(b.key, CompareOp::less, a.key) : ordered(a.key, CompareOp::less, b.key);
  });
}

Value to_list(const Vector<Keyed>& keyed) {
  Items items;
  for (const Keyed& entry : keyed)
    items.push_back(entry.item);
  return make_list(std::move(items));
}

/// By one attribute, or by all of those that commas separate.
Value sort(const Value& subject, const Bound& given) {
  Vector<Items> paths;
  if (const Text* names = given[2].text()) {
    for (const Value& name : split(*names, ",", -1, false))
      paths.push_back(attribute_path(name));
  } else {
    paths.push_back(attribute_path(given[2]));
  }
  Vector<Keyed> keyed;
  for (Value& item : to_items(subject)) {
    Items keys;
    for (const Items& path : paths)
      keys.push_back(key_of(path, item, given.truth(1)));
    keyed.push_back({make_list(std::move(keys)), std::move(item)});
  }
  sort_by_key(keyed, given.truth(0));
  return to_list(keyed);
}

Value dictsort(const Value& subject, const Bound& given) {
  subject.require_defined();
  if (subject.dict() == nullptr) fail<TemplateError>("dictsort: '{}', expected a dict", subject.type_name());
  const Text by = given.text(1, "key");
  if (by.bytes() != "key" && by.bytes() != "value")
    fail<TemplateError>("dictsort: by '{}', expected key or value", by.bytes());
  Vector<Keyed> keyed;
  for (const auto& [key, value] : subject.dict()->entries()) {
    const Value& sort_key = by.bytes() == "key" ? key : value;
    keyed.push_back({key_of({}, sort_key, given.truth(0)), make_tuple({key, value})});
  }
  sort_by_key(keyed, given.truth(2));
  return to_list(keyed);
}

Value items_filter(const Value& subject, const Bound&) {
  const Value dict = subject.is_undefined() ? make_dict({}) : subject;
  if (dict.dict() == nullptr) fail<TemplateError>("items: '{}', expected a dict", subject.type_name());
  return generate(make_dict_view(dict, ViewKind::items));
}

Value unique(const Value& subject, const Bound& given) {
  return make_generator(
      [iterator = iterate(subject), path = attribute_path(given[1]), case_sensitive = given.truth(0),
       seen = Dict()]() mutable -> std::optional<Value> {
        while (std::optional<Value> item = iterator->next()) {
          const size_t before = seen.size();
          Rendering::step();
          seen.set(key_of(path, *item, case_sensitive), Value());
          if (seen.size() > before) return item;
        }
        return std::nullopt;
      },
      subject.depth());
}

/// The first element whose key stands before those of all others in this order.
template <CompareOp order>
Value extreme(const Value& subject, const Bound& given) {
  const Items path = attribute_path(given[1]);
  std::optional<Keyed> best;
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  while (std::optional<Value> item = iterator->next()) {
    Value key = key_of(path, *item, given.truth(0));
    if (!best || ordered(key, order, best->key)) best = Keyed{std::move(key), *std::move(item)};
  }
  return best ? best->item : Value::undefined("no aggregated item, the sequence was empty");
}

Value groupby(const Value& subject, const Bound& given) {
  const Items path = attribute_path(given[0]);
  Vector<Keyed> keyed;
  for (Value& item : to_items(subject)) {
    Value key = key_of(path, item, given.truth(2), given[1]);
    keyed.push_back({std::move(key), std::move(item)});
  }
  sort_by_key(keyed, false);
  Items groups;
  for (auto begin = keyed.begin(); begin != keyed.end();) {
    const auto end =
        std::find_if_not(begin, keyed.end(), [&](const Keyed& k) { return equals(begin->key, k.key); });
    groups.push_back(make_group(key_of(path, begin->item, true, given[1]), to_list({begin, end})));
    begin = end;
  }
  return make_list(std::move(groups));
}

Value batch(const Value& subject, const Bound& given) {
  const int64_t size = given.integer(0, 1);
  Items rows;
  Items row;
  for (Value& item : to_items(subject)) {
    if (static_cast<int64_t>(row.size()) == size) rows.push_back(make_list(std::exchange(row, {})));
    row.push_back(std::move(item));
  }
  const auto filled = static_cast<int64_t>(row.size());
  if (!row.empty() && !given[1].is_none() && filled < size) {
    const auto missing = static_cast<size_t>(size - filled);
    Rendering::require(missing, sizeof(Value));
    row.insert(row.end(), missing, given[1]);
  }
  if (!row.empty()) rows.push_back(make_list(std::move(row)));
  return generate(make_list(std::move(rows)));
}

Value slice(const Value& subject, const Bound& given) {
  const int64_t slices = given.integer(0, 1);
  if (slices == 0) fail<TemplateError>("slice into 0 slices, expected at least 1");
  const Items items = to_items(subject);
  const auto length = static_cast<int64_t>(items.size());
  Items rows;
  auto from = items.begin();
  for (int64_t i = 0; i < slices; ++i) {
    Rendering::step();
    const bool extra = i < length % slices;
    const auto to = from + length / slices + (extra ? 1 : 0);
    Items row(from, to);
    if (!given[1].is_none() && !extra) row.push_back(given[1]);
    rows.push_back(make_list(std::move(row)));
    from = to;
  }
  return generate(make_list(std::move(rows)));
}

Value length(const Value& subject, const Bound&) {
  const std::optional<size_t> size = length_of(subject);
  if (!size) fail<TemplateError>("'{}' has no length", subject.type_name());
  return Value(static_cast<int64_t>(*size));
}

Value sum(const Value& subject, const Bound& given) {
  const Items path = attribute_path(given[0]);
  Value total = given.get(1, Value(int64_t{0}));
  if (total.text() != nullptr) fail<TemplateError>("sum: start is a text, expected a number or a list");
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  while (std::optional<Value> item = iterator->next())
    total = apply(BinaryOp::add, total, read_path(path, *std::move(item)));
  return total;
}

// map, select and their kind: filters that apply another filter or a test to every element.

/// The elements that `next` gives on demand, which holds `subject` and `arguments`.
Value generate_from(const Value& subject, const Arguments& arguments,
                    std::function<std::optional<Value>()> next) {
  int depth = subject.depth();
  for (const Value& value : arguments.positional)
    depth = std::max(depth, value.depth());
  for (const auto& [name, value] : arguments.named)
    depth = std::max(depth, value.depth());
  return make_generator(std::move(next), depth);
}

Value nothing() {
  return make_generator([] { return std::nullopt; }, 0);
}

/// The filter or test that argument `at` names, and the arguments behind it.
std::pair<const Builtin*, Arguments> read_function(const Arguments& arguments, size_t at,
                                                   std::string_view what,
                                                   const Builtin* (*find)(std::string_view)) {
  const Value& name = arguments.positional[at];
  name.require_defined();
  if (name.text() == nullptr)
    fail<TemplateError>("the name of a {} is a '{}', expected a text", what, name.type_name());
  const Builtin* function = find(name.text()->bytes());
  if (function == nullptr) fail<TemplateError>("no {} named '{}'", what, name.text()->bytes());
  const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(at + 1);
  return {function, {{rest, arguments.positional.end()}, arguments.named}};
}

Value map(const Value& subject, const Bound& given) {
  if (!subject.truth()) return nothing();
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  if (!given.all.positional.empty()) {
    const auto applied = read_function(given.all, 0, "filter", find_filter);
    return generate_from(subject, given.all, [=]() -> std::optional<Value> {
      const auto& [filter, rest] = applied;
      const std::optional<Value> item = iterator->next();
      return item ? std::optional((*filter)(*item, rest)) : std::nullopt;
    });
  }
  Value attribute, absent;
  bool has_attribute = false;
  for (const auto& [name, value] : given.all.named) {
    if (name != "attribute" && name != "default")
      fail<TemplateError>("map() has no argument named '{}'", name);
    has_attribute |= name == "attribute";
    (name == "attribute" ? attribute : absent) = value;
  }
  if (!has_attribute) fail<TemplateError>("map() expects the name of a filter, or attribute=");
  return generate_from(subject, given.all, [=, path = attribute_path(attribute)]() -> std::optional<Value> {
    std::optional<Value> item = iterator->next();
    return item ? std::optional(read_path(path, *std::move(item), absent)) : std::nullopt;
  });
}

/// The elements of which a test holds, or that are true without one.
template <bool wanted, bool by_attribute>
Value select(const Value& subject, const Bound& given) {
  if (!subject.truth()) return nothing();
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  const Items& arguments = given.all.positional;
  if (by_attribute && arguments.empty())
    fail<TemplateError>("selectattr() and rejectattr() expect the name of an attribute");
  const Items path = by_attribute ? attribute_path(arguments.front()) : Items();
  const size_t test_at = by_attribute ? 1 : 0;
  std::pair<const Builtin*, Arguments> read{};
  if (arguments.size() > test_at) read = read_function(given.all, test_at, "test", find_test);
  return generate_from(subject, given.all,
                       [=, test = read.first, rest = read.second]() -> std::optional<Value> {
                         while (std::optional<Value> item = iterator->next()) {
                           const Value value = read_path(path, *item);
                           if ((test == nullptr ? value : (*test)(value, rest)).truth() == wanted)
                             return item;
                         }
                         return std::nullopt;
                       });
}

}  // namespace

std::span<const Builtin> sequence_filters() {
  static constexpr Builtin kFilters[] = {
      {"default", {"default_value", "boolean"}, 0, default_filter},
      {"d", {"default_value", "boolean"}, 0, default_filter},
      {"attr", {"name"}, 1, attr},
      {"first", {}, 0, first},
      {"last", {}, 0, last},
      {"reverse", {}, 0, reverse},
      {"list", {}, 0, list},
      {"join", {"d", "attribute"}, 0, join},
      {"sort", {"reverse", "case_sensitive", "attribute"}, 0, sort},
      {"dictsort", {"case_sensitive", "by", "reverse"}, 0, dictsort},
      {"items", {}, 0, items_filter},
      {"unique", {"case_sensitive", "attribute"}, 0, unique},
      {"min", {"case_sensitive", "attribute"}, 0, extreme<CompareOp::less>},
      {"max", {"case_sensitive", "attribute"}, 0, extreme<CompareOp::greater>},
      {"groupby", {"attribute", "default", "case_sensitive"}, 1, groupby},
      {"batch", {"linecount", "fill_with"}, 1, batch},
      {"slice", {"slices", "fill_with"}, 1, slice},
      {"length", {}, 0, length},
      {"count", {}, 0, length},
      {"sum", {"attribute", "start"}, 0, sum},
      {"map", {"*"}, 0, map},
      {"select", {"*"}, 0, select<true, false>},
      {"reject", {"*"}, 0, select<false, false>},
      {"selectattr", {"*"}, 0, select<true, true>},
      {"rejectattr", {"*"}, 0, select<false, true>},
  };
  return kFilters;
}

}  // namespace minfer::jinja
