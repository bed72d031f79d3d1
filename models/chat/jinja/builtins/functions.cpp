// The arguments of built-in functions, and the functions by their names. Methods that would change their object do not exist, as in the
// immutable sandbox.
#include "models/chat/jinja/builtins/functions.h"

#include <algorithm>

namespace minfer::jinja {
namespace {

const Builtin* find(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::ranges::find(table, name, &Builtin::name);
  return found == table.end() ? nullptr : &*found;
}

Value dict_get(const Value& self, const Bound& given) {
  const Value* found = self.dict()->find(given[0]);
  return found != nullptr ? *found : given[1];
}

template <ViewKind kind>
Value dict_view(const Value& self, const Bound&) {
  return make_dict_view(self, kind);
}

Value copy(const Value& self, const Bound&) {
  return self;
}

Value list_count(const Value& self, const Bound& given) {
  return Value(static_cast<int64_t>(std::ranges::count_if(
      self.sequence()->items, [&](const Value& item) { return equals(item, given[0]); })));
}

Value list_index(const Value& self, const Bound& given) {
  const Items& items = self.sequence()->items;
  const auto length = static_cast<int64_t>(items.size());
  const auto clip = [length](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? std::max(at, -length) + length : at, 0, length);
  };
  for (int64_t i = clip(given.integer(1, 0)); i < clip(given.integer(2, length)); ++i)
    if (equals(items[static_cast<size_t>(i)], given[0])) return Value(i);
  fail<TemplateError>("index(): the value is not in the list");
}

constexpr Builtin kDictMethods[] = {{"get", {"_", "_"}, 1, dict_get},
                                    {"items", {}, 0, dict_view<ViewKind::items>},
                                    {"keys", {}, 0, dict_view<ViewKind::keys>},
                                    {"values", {}, 0, dict_view<ViewKind::values>},
                                    {"copy", {}, 0, copy}};
constexpr Builtin kListMethods[] = {
    {"count", {"_"}, 1, list_count}, {"index", {"_", "_", "_"}, 1, list_index}, {"copy", {}, 0, copy}};

std::span<const Builtin> methods_of(const Value& object) {
  if (object.text() != nullptr) return text_methods();
  if (object.dict() != nullptr) return kDictMethods;
  if (object.sequence() == nullptr) return {};
  return std::span(kListMethods).first(object.is_list() ? 3 : 2);  // tuples have no copy()
}

}  // namespace

Value Builtin::operator()(const Value& subject, const Arguments& arguments) const {
  return function(subject, Bound(*this, arguments));
}

Bound::Bound(const Builtin& builtin, const Arguments& arguments) : all(arguments), function_(builtin.name) {
  if (builtin.parameters[0] == "*") return;
  const auto end = std::ranges::find(builtin.parameters, "");
  const std::span parameters(std::begin(builtin.parameters), end);
  if (all.positional.size() > parameters.size()) {
    fail<TemplateError>("{}() with {} arguments, expected at most {}", function_, all.positional.size(),
                        parameters.size());
  }
  for (size_t i = 0; i < all.positional.size(); ++i)
    values_[i] = &all.positional[i];
  for (const auto& [name, value] : all.named) {
    const auto found = std::ranges::find(parameters, name);
    if (name == "_" || found == parameters.end())
      fail<TemplateError>("{}() has no argument named '{}'", function_, name);
    const Value*& slot = values_[found - parameters.begin()];
    if (slot != nullptr) fail<TemplateError>("{}(): argument '{}' is given twice", function_, name);
    slot = &value;
  }
  for (size_t i = 0; i < builtin.num_required; ++i) {
    if (!has(i))
      fail<TemplateError>("{}() with too few arguments, expected {} at least", function_,
                          builtin.num_required);
  }
}

const Value& Bound::operator[](size_t i) const {
  static const Value none;
  return has(i) ? *values_[i] : none;
}

int64_t Bound::integer(size_t i, int64_t absent) const {
  if (!has(i)) return absent;
  const auto value = values_[i]->integer();
  if (!value) fail_type(i, "an int");
  return *value;
}

std::optional<int64_t> Bound::optional_integer(size_t i) const {
  if ((*this)[i].is_none()) return std::nullopt;
  return integer(i, 0);
}

const Text& Bound::text(size_t i) const {
  const Text* value = (*this)[i].text();
  if (value == nullptr) fail_type(i, "a text");
  return *value;
}

void Bound::fail_type(size_t i, std::string_view expected) const {
  (*this)[i].require_defined();
  fail<TemplateError>("{}(): argument {} is a '{}', expected {}", function_, i + 1, (*this)[i].type_name(),
                      expected);
}

std::optional<Value> find_method(const Value& object, std::string_view name) {
  const Builtin* method = find(methods_of(object), name);
  if (method == nullptr) return std::nullopt;
  return make_function(
      method->name, [object, method](const Arguments& arguments) { return (*method)(object, arguments); },
      object.depth() + 1);
}

const Builtin* find_filter(std::string_view name) {
  for (const auto& table : {text_filters(), number_filters(), sequence_filters()})
    if (const Builtin* found = find(table, name)) return found;
  return nullptr;
}

}  // namespace minfer::jinja
