// map, select and their kind: filters that apply another filter or a test to every element.
#include <algorithm>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/value/access.h"
#include "models/chat/jinja/value/number_format.h"

namespace minfer::jinja {

Items attribute_path(const Value& attribute) {
  if (attribute.is_none()) return {};
  const Text* text = attribute.text();
  if (text == nullptr) return {attribute};
  Items parts = split(*text, ".", -1, false);
  for (Value& part : parts) {
    const std::string_view name = part.text()->bytes();
    if (!name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos)
      part = Value(parse_integer(name, 10).value_or(0));
  }
  return parts;
}

Value read_path(const Items& path, Value value, const Value& absent) {
  for (const Value& part : path) {
    value = get_item(value, part);
    if (!absent.is_none() && value.is_undefined()) value = absent;
  }
  return value;
}

namespace {

/// The elements that `next` gives on demand, which holds `subject` and `arguments`.
Value generate(const Value& subject, const Arguments& arguments, std::function<std::optional<Value>()> next) {
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
    auto [filter, rest] = read_function(given.all, 0, "filter", find_filter);
    return generate(subject, given.all, [=]() -> std::optional<Value> {
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
  return generate(subject, given.all, [=, path = attribute_path(attribute)]() -> std::optional<Value> {
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
  return generate(subject, given.all, [=, test = read.first, rest = read.second]() -> std::optional<Value> {
    while (std::optional<Value> item = iterator->next()) {
      const Value value = read_path(path, *item);
      if ((test == nullptr ? value : (*test)(value, rest)).truth() == wanted) return item;
    }
    return std::nullopt;
  });
}

}  // namespace

std::span<const Builtin> selection_filters() {
  static constexpr Builtin kFilters[] = {{"map", {"*"}, 0, map},
                                         {"select", {"*"}, 0, select<true, false>},
                                         {"reject", {"*"}, 0, select<false, false>},
                                         {"selectattr", {"*"}, 0, select<true, true>},
                                         {"rejectattr", {"*"}, 0, select<false, true>}};
  return kFilters;
}

}  // namespace minfer::jinja
