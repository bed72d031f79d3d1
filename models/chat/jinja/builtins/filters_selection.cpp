// map, select and their kind: filters that apply another filter or a test to every element.
#include <algorithm>

#include "models/chat/jinja/builtins/filter_table.h"
#include "models/chat/jinja/value/access.h"
#include "models/chat/jinja/value/number_format.h"
#include "models/chat/jinja/value/unicode.h"

namespace minfer::jinja {

AttributePath::AttributePath(const Value& attribute) {
  if (attribute.is_none()) return;
  const Text* text = attribute.text();
  if (text == nullptr) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = text->bytes();
  while (true) {
    const size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    const bool digits =
        !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    parts_.push_back(digits ? Value(parse_integer(part, 10).value_or(0)) : make_text(part));
    if (dot == rest.size()) return;
    rest.remove_prefix(dot + 1);
  }
}

Value AttributePath::read(Value value, const Value& absent) const {
  for (const Value& part : parts_) {
    value = get_item(value, part);
    if (!absent.is_none() && value.is_undefined()) value = absent;
  }
  return value;
}

namespace {

/// A function of one value that a filter's arguments describe.
using ValueFunction = std::function<Value(const Value&)>;

const Text& name_of(const Value& value, std::string_view what) {
  value.require_defined();
  if (value.text() == nullptr)
    fail<TemplateError>("the name of a {} is a '{}', expected a text", what, value.type_name());
  return *value.text();
}

Arguments without_first(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

ValueFunction mapping(const Arguments& arguments) {
  if (arguments.positional.empty()) {
    Value attribute, absent;
    bool given = false;
    for (const auto& [name, value] : arguments.named) {
      if (name == "attribute") {
        attribute = value;
        given = true;
      } else if (name == "default") {
        absent = value;
      } else {
        fail<TemplateError>("map() has no argument named '{}'", name);
      }
    }
    if (!given) fail<TemplateError>("map() expects the name of a filter, or attribute=");
    return [path = AttributePath(attribute), absent](const Value& item) { return path.read(item, absent); };
  }
  const std::string_view name = name_of(arguments.positional.front(), "filter").bytes();
  const Filter filter = find_filter(name);
  if (filter == nullptr) fail<TemplateError>("no filter named '{}'", name);
  return [filter, rest = without_first(arguments, 1)](const Value& item) { return filter(item, rest); };
}

/// The condition on elements: a test, or that the element is true.
ValueFunction condition(const Arguments& arguments, bool by_attribute) {
  Value attribute;
  if (by_attribute) {
    if (arguments.positional.empty())
      fail<TemplateError>("selectattr() and rejectattr() expect the name of an attribute");
    attribute = arguments.positional.front();
  }
  const AttributePath path(attribute);
  const size_t test_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() <= test_at)
    return [path](const Value& item) { return Value(path.read(item).truth()); };
  const std::string_view name = name_of(arguments.positional[test_at], "test").bytes();
  const Test test = find_test(name);
  if (test == nullptr) fail<TemplateError>("no test named '{}'", name);
  return [path, test, rest = without_first(arguments, test_at + 1)](const Value& item) {
    return Value(test(path.read(item), rest));
  };
}

int depth_with(const Value& subject, const Arguments& arguments) {
  int depth = subject.depth();
  for (const Value& value : arguments.positional)
    depth = std::max(depth, value.depth());
  for (const auto& [name, value] : arguments.named)
    depth = std::max(depth, value.depth());
  return depth;
}

Value map(const Value& subject, const Arguments& arguments) {
  if (!subject.truth()) return make_generator([]() { return std::nullopt; }, 0);
  return make_generator(
      [iterator = iterate(subject), function = mapping(arguments)]() -> std::optional<Value> {
        const std::optional<Value> item = iterator->next();
        if (!item) return std::nullopt;
        return function(*item);
      },
      depth_with(subject, arguments));
}

template <bool wanted, bool by_attribute>
Value select(const Value& subject, const Arguments& arguments) {
  if (!subject.truth()) return make_generator([]() { return std::nullopt; }, 0);
  return make_generator(
      [iterator = iterate(subject), holds = condition(arguments, by_attribute)]() -> std::optional<Value> {
        while (std::optional<Value> item = iterator->next())
          if (holds(*item).truth() == wanted) return item;
        return std::nullopt;
      },
      depth_with(subject, arguments));
}

}  // namespace

FilterEntries selection_filters() {
  return {{"map", map},
          {"select", select<true, false>},
          {"reject", select<false, false>},
          {"selectattr", select<true, true>},
          {"rejectattr", select<false, true>}};
}

}  // namespace minfer::jinja
