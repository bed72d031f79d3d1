// The tests that may follow `is`.
#include <unordered_map>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/text_operations.h"
#include "models/chat/jinja/value/operators.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

/// A test without arguments.
template <auto is>
bool plain(const Value& subject, const Arguments& arguments) {
  Bound("test", arguments, {});
  return is(subject);
}

bool is_sequence(const Value& value) {
  const std::shared_ptr<Object> object = value.object();
  return value.text() != nullptr || value.sequence() != nullptr || value.dict() != nullptr ||
         value.is_undefined() || (object != nullptr && object->has_positions());
}
bool is_callable(const Value& value) {
  const std::shared_ptr<Object> object = value.object();
  return value.is_undefined() || (object != nullptr && object->callable());
}

template <bool (*is_wanted)(char32_t)>
bool cased(const Value& subject, const Arguments& arguments) {
  Bound("test", arguments, {});
  return has_case(to_text(subject), is_wanted);
}

template <int divisor, int rest>
bool leaves(const Value& subject, const Arguments& arguments) {
  Bound("test", arguments, {});
  const Value left = apply(BinaryOp::modulo, subject, Value(int64_t{divisor}));
  return equals(left, Value(int64_t{rest}));
}

bool is_divisible(const Value& subject, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  const Value left = apply(BinaryOp::modulo, subject, bound[0]);
  return equals(left, Value(int64_t{0}));
}

bool is_same(const Value& subject, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  if (subject.identity() != nullptr || bound[0].identity() != nullptr)
    return subject.identity() == bound[0].identity();
  return subject.type_name() == bound[0].type_name() && equals(subject, bound[0]);
}

bool is_in(const Value& subject, const Arguments& arguments) {
  return contains(Bound("in", arguments, {"seq"}, 1)[0], subject);
}

bool is_equal(const Value& subject, const Arguments& arguments) {
  return equals(subject, Bound("eq", arguments, {""}, 1)[0]);
}
bool is_unequal(const Value& subject, const Arguments& arguments) {
  return !equals(subject, Bound("ne", arguments, {""}, 1)[0]);
}
bool is_less(const Value& subject, const Arguments& arguments) {
  return ordered(subject, "<", Bound("lt", arguments, {""}, 1)[0]);
}
bool is_at_most(const Value& subject, const Arguments& arguments) {
  return ordered(subject, "<=", Bound("le", arguments, {""}, 1)[0]);
}
bool is_greater(const Value& subject, const Arguments& arguments) {
  return ordered(subject, ">", Bound("gt", arguments, {""}, 1)[0]);
}
bool is_at_least(const Value& subject, const Arguments& arguments) {
  return ordered(subject, ">=", Bound("ge", arguments, {""}, 1)[0]);
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> tests{
      {"defined", plain<[](const Value& value) { return !value.is_undefined(); }>},
      {"undefined", plain<[](const Value& value) { return value.is_undefined(); }>},
      {"none", plain<[](const Value& value) { return value.is_none(); }>},
      {"boolean", plain<[](const Value& value) { return value.boolean() != nullptr; }>},
      {"true", plain<[](const Value& value) { return value.boolean() != nullptr && *value.boolean(); }>},
      {"false", plain<[](const Value& value) { return value.boolean() != nullptr && !*value.boolean(); }>},
      {"integer",
       plain<[](const Value& value) { return value.integer().has_value() && value.boolean() == nullptr; }>},
      {"float", plain<[](const Value& value) { return value.real() != nullptr; }>},
      {"number", plain<[](const Value& value) { return value.is_number(); }>},
      {"string", plain<[](const Value& value) { return value.text() != nullptr; }>},
      {"mapping", plain<[](const Value& value) { return value.dict() != nullptr; }>},
      {"sequence", plain<is_sequence>},
      {"iterable", plain<is_iterable>},
      {"callable", plain<is_callable>},
      {"escaped",
       plain<[](const Value& value) { return value.text() != nullptr && value.text()->is_markup(); }>},
      {"filter", plain<[](const Value& value) {
         return value.text() != nullptr && find_filter(value.text()->bytes()) != nullptr;
       }>},
      {"test", plain<[](const Value& value) {
         return value.text() != nullptr && find_test(value.text()->bytes()) != nullptr;
       }>},
      {"lower", cased<is_lower>},
      {"upper", cased<is_upper>},
      {"odd", leaves<2, 1>},
      {"even", leaves<2, 0>},
      {"divisibleby", is_divisible},
      {"sameas", is_same},
      {"in", is_in},
      {"==", is_equal},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"!=", is_unequal},
      {"ne", is_unequal},
      {"<", is_less},
      {"lt", is_less},
      {"lessthan", is_less},
      {"<=", is_at_most},
      {"le", is_at_most},
      {">", is_greater},
      {"gt", is_greater},
      {"greaterthan", is_greater},
      {">=", is_at_least},
      {"ge", is_at_least},
  };
  const auto found = tests.find(name);
  return found == tests.end() ? nullptr : found->second;
}

}  // namespace minfer::jinja
