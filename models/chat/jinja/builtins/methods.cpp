// Methods of texts, lists and dicts, and filters by their names. Methods that would change their object do not exist, as in the immutable
// sandbox.
#include <algorithm>
#include <unordered_map>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/filter_table.h"

namespace minfer::jinja {
namespace {

Value dict_get(const Value& self, const Arguments& arguments) {
  const Bound bound("get", arguments, {"", ""}, 1);
  const Value* found = self.dict()->find(bound[0]);
  return found != nullptr ? *found : bound[1];
}

template <ViewKind kind>
Value dict_view(const Value& self, const Arguments& arguments) {
  Bound("keys, values or items", arguments, {});
  return make_dict_view(self, kind);
}

Value copy(const Value& self, const Arguments& arguments) {
  Bound("copy", arguments, {});
  return self;
}

Value list_count(const Value& self, const Arguments& arguments) {
  const Bound bound("count", arguments, {""}, 1);
  return Value(static_cast<int64_t>(std::ranges::count_if(
      self.sequence()->items, [&](const Value& item) { return equals(item, bound[0]); })));
}

Value list_index(const Value& self, const Arguments& arguments) {
  const Bound bound("index", arguments, {"", "", ""}, 1);
  const Items& items = self.sequence()->items;
  const auto length = static_cast<int64_t>(items.size());
  const auto clip = [length](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? std::max(at, -length) + length : at, 0, length);
  };
  for (int64_t i = clip(bound.integer(1, 0)); i < clip(bound.integer(2, length)); ++i)
    if (equals(items[static_cast<size_t>(i)], bound[0])) return Value(i);
  fail<TemplateError>("index(): the value is not in the list");
}

const std::unordered_map<std::string_view, Method>& methods_of(const Value& object) {
  static const std::unordered_map<std::string_view, Method> none;
  static const std::unordered_map<std::string_view, Method> texts = text_methods();
  static const std::unordered_map<std::string_view, Method> dicts{{"get", dict_get},
                                                                  {"items", dict_view<ViewKind::items>},
                                                                  {"keys", dict_view<ViewKind::keys>},
                                                                  {"values", dict_view<ViewKind::values>},
                                                                  {"copy", copy}};
  static const std::unordered_map<std::string_view, Method> tuples{{"count", list_count},
                                                                   {"index", list_index}};
  static const std::unordered_map<std::string_view, Method> lists{
      {"count", list_count}, {"index", list_index}, {"copy", copy}};
  if (object.text() != nullptr) return texts;
  if (object.dict() != nullptr) return dicts;
  if (object.sequence() == nullptr) return none;
  return object.sequence()->kind == Sequence::Kind::list ? lists : tuples;
}

}  // namespace

std::optional<Value> find_method(const Value& object, std::string_view name) {
  const std::unordered_map<std::string_view, Method>& methods = methods_of(object);
  const auto found = methods.find(name);
  if (found == methods.end()) return std::nullopt;
  return make_function(
      found->first,
      [object, method = found->second](const Arguments& arguments) { return method(object, arguments); },
      object.depth() + 1);
}

Filter find_filter(std::string_view name) {
  static const std::unordered_map<std::string_view, Filter> filters = [] {
    std::unordered_map<std::string_view, Filter> table;
    for (const FilterEntries& entries :
         {text_filters(), number_filters(), sequence_filters(), selection_filters()})
      table.insert(entries.begin(), entries.end());
    return table;
  }();
  const auto found = filters.find(name);
  return found == filters.end() ? nullptr : found->second;
}

}  // namespace minfer::jinja
