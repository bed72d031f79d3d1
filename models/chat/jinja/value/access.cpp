#include "models/chat/jinja/value/access.h"

#include <algorithm>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/value/unicode.h"
#include "models/gguf/printable.h"

namespace minfer::jinja {
namespace {

Value missing(const Value& object, std::string_view what, std::string_view name) {
  return Value::undefined(fmt::format("'{}{}' has no {} '{}'", object.type_name(),
                                      object.is_none() ? "" : " object", what, printable(name)));
}

bool changes_its_object(const Value& object, std::string_view method) {
  constexpr std::string_view kList[] = {"append", "clear", "pop",    "reverse",
                                        "insert", "sort",  "extend", "remove"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (object.dict() != nullptr) return std::ranges::find(kDict, method) != std::end(kDict);
  return object.is_list() && std::ranges::find(kList, method) != std::end(kList);
}

/// The attribute that Python's getattr finds; no value if there is none.
std::optional<Value> find_attribute(const Value& object, std::string_view name) {
  const Sequence* sequence = object.sequence();
  if (sequence != nullptr && sequence->kind == Sequence::Kind::group && (name == "grouper" || name == "list"))
    return sequence->items[name == "grouper" ? 0 : 1];
  std::optional<Value> found =
      object.object() != nullptr ? object.object()->attribute(name) : find_method(object, name);
  const bool internal = name.starts_with("__") && name.ends_with("__");
  if (internal || changes_its_object(object, name) || (found && name.starts_with("_")))
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' is unsafe", printable(name), object.type_name()));
  return found;
}

/// Position `index` of a text, counted from the end if negative; nothing outside.
std::optional<Value> find_character(const Text& text, int64_t index) {
  const auto length = static_cast<int64_t>(count_characters(text.bytes()));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  if (length == static_cast<int64_t>(text.size())) return Value(text.substr(static_cast<size_t>(index), 1));
  std::string_view rest = text.bytes();
  for (; index > 0; --index)
    rest.remove_prefix(read_utf8(rest).length);
  return Value(text.substr(text.size() - rest.size(), read_utf8(rest).length));
}

std::optional<Value> find_position(const Value& object, int64_t index) {
  if (const Text* text = object.text()) return find_character(*text, index);
  const auto length = static_cast<int64_t>(object.num_positions().value_or(0));
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return object.at(static_cast<size_t>(index));
}

std::optional<int64_t> slice_bound(const Value& value) {
  if (value.is_none()) return std::nullopt;
  value.require_defined();
  if (const auto integer = value.integer()) return integer;
  fail<TemplateError>("a slice from or to a '{}', expected an int or None", value.type_name());
}

/// Positions that a slice takes, as Python's slice.indices.
struct Positions {
  int64_t begin;
  int64_t step;
  size_t count;

  size_t at(size_t i) const { return static_cast<size_t>(begin + static_cast<int64_t>(i) * step); }
};

Positions positions_of(size_t size, const Value& begin, const Value& end, const Value& step) {
  const auto length = static_cast<int64_t>(size);
  const int64_t stride = slice_bound(step).value_or(1);
  if (stride == 0) fail<TemplateError>("a slice with step 0, expected another");
  const int64_t low = stride > 0 ? 0 : -1;
  const int64_t high = stride > 0 ? length : length - 1;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t absent) {
    if (!bound) return absent;
    const int64_t position = *bound < 0 ? std::max(*bound, -length - 1) + length : *bound;
    return std::clamp(position, low, std::max(low, high));
  };
  const int64_t first = clamp(slice_bound(begin), stride > 0 ? low : high);
  const int64_t last = clamp(slice_bound(end), stride > 0 ? high : low);
  const int64_t distance = stride > 0 ? last - first : first - last;
  const uint64_t width = stride > 0 ? static_cast<uint64_t>(stride) : 0 - static_cast<uint64_t>(stride);
  return {first, stride,
          distance <= 0 ? 0 : static_cast<size_t>((static_cast<uint64_t>(distance) - 1) / width + 1)};
}

Value slice_text(const Text& text, const Value& begin, const Value& end, const Value& step) {
  Vector<size_t> borders;  // where characters begin, and the end; empty: every byte is one
  if (!is_ascii(text.bytes())) {
    for_each_character(text.bytes(), [&](char32_t, size_t at, size_t) { borders.push_back(at); });
    borders.push_back(text.size());
  }
  const auto border = [&](size_t i) { return borders.empty() ? i : borders[i]; };
  const Positions positions =
      positions_of(borders.empty() ? text.size() : borders.size() - 1, begin, end, step);
  Text out;
  if (positions.step == 1) {
    const auto first = static_cast<size_t>(positions.begin);
    out.append(text, border(first), border(first + positions.count) - border(first));
    return Value(std::move(out));
  }
  Rendering::step(positions.count / 8);
  for (size_t i = 0; i < positions.count; ++i) {
    const size_t at = positions.at(i);
    out.append(text, border(at), border(at + 1) - border(at));
  }
  return Value(std::move(out));
}

}  // namespace

Value get_attribute(const Value& object, std::string_view name) {
  object.require_defined();
  if (const std::optional<Value> found = find_attribute(object, name)) return *found;
  if (const Dict* dict = object.dict()) {
    if (const Value* found = dict->find(name)) return *found;
  }
  return missing(object, "attribute", name);
}

Value get_item(const Value& object, const Value& key) {
  object.require_defined();
  if (const Dict* dict = object.dict()) {
    const bool hashable = key.dict() == nullptr && !key.is_list();
    const Value* found = hashable ? dict->find(key) : nullptr;
    if (found != nullptr) return *found;
  } else if (const std::optional<int64_t> index = key.integer()) {
    if (std::optional<Value> found = find_position(object, *index)) return *found;
  }
  if (const Text* name = key.text()) {
    if (std::optional<Value> found = find_attribute(object, name->bytes())) return *found;
    return missing(object, "attribute", name->bytes());
  }
  return missing(object, "element", key.integer() ? fmt::format("{}", *key.integer()) : key.type_name());
}

Value get_slice(const Value& object, const Value& begin, const Value& end, const Value& step) {
  object.require_defined();
  if (const Text* text = object.text()) return slice_text(*text, begin, end, step);
  const std::optional<size_t> length = object.num_positions();
  if (!length) fail<TemplateError>("a slice of '{}', expected a text, list or tuple", object.type_name());
  const Positions positions = positions_of(*length, begin, end, step);
  Items items;
  for (size_t i = 0; i < positions.count; ++i)
    items.push_back(object.at(positions.at(i)));
  return object.is_tuple() ? make_tuple(std::move(items)) : make_list(std::move(items));
}

}  // namespace minfer::jinja
