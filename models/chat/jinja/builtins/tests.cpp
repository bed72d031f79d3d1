// What may stand behind `is`.
#include <unordered_map>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/value/operators.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

using Is = bool(const Value&);

/// A test without arguments.
template <Is is>
bool plain(Evaluation&, const Value& subject, const Arguments& arguments) {
  Bound("test", arguments, {});
  return is(subject);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_boolean(const Value& value) {
  return value.boolean() != nullptr;
}
bool is_true(const Value& value) {
  return value.boolean() != nullptr && *value.boolean();
}
bool is_false(const Value& value) {
  return value.boolean() != nullptr && !*value.boolean();
}
bool is_integer(const Value& value) {
  return value.integer().has_value() && value.boolean() == nullptr;
}
bool is_float(const Value& value) {
  return value.real() != nullptr;
}
bool is_number(const Value& value) {
  return value.is_number();
}
bool is_string(const Value& value) {
  return value.text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
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
bool is_escaped(const Value& value) {
  return value.text() != nullptr && value.text()->is_markup();
}
bool is_filter_name(const Value& value) {
  return value.text() != nullptr && find_filter(value.text()->bytes()) != nullptr;
}
bool is_test_name(const Value& value) {
  return value.text() != nullptr && find_test(value.text()->bytes()) != nullptr;
}

/// All letters with case are of the one that `is_wanted` tells, and there are some.
bool has_case(Evaluation& evaluation, const Value& subject, bool (*is_wanted)(char32_t)) {
  const Text text = to_text(evaluation.budget, subject);
  bool any = false;
  bool all = true;
  for_each_character(text.bytes(), [&](char32_t c, size_t, size_t) {
    if (is_wanted(c)) {
      any = true;
    } else if (is_cased(c)) {
      all = false;
    }
  });
  return any && all;
}

template <bool (*is_wanted)(char32_t)>
bool cased(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  Bound("test", arguments, {});
  return has_case(evaluation, subject, is_wanted);
}

template <int divisor, int rest>
bool leaves(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  Bound("test", arguments, {});
  const Value left = apply(evaluation, BinaryOp::modulo, subject, Value(int64_t{divisor}));
  return equals(evaluation.budget, left, Value(int64_t{rest}));
}

bool is_divisible(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  const Bound bound("divisibleby", arguments, {"num"}, 1);
  const Value left = apply(evaluation, BinaryOp::modulo, subject, bound[0]);
  return equals(evaluation.budget, left, Value(int64_t{0}));
}

bool is_same(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  const Bound bound("sameas", arguments, {"other"}, 1);
  if (subject.identity() != nullptr || bound[0].identity() != nullptr)
    return subject.identity() == bound[0].identity();
  return subject.type_name() == bound[0].type_name() && equals(evaluation.budget, subject, bound[0]);
}

bool is_in(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  return contains(evaluation, Bound("in", arguments, {"seq"}, 1)[0], subject);
}

bool is_equal(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  return equals(evaluation.budget, subject, Bound("eq", arguments, {""}, 1)[0]);
}
bool is_unequal(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  return !equals(evaluation.budget, subject, Bound("ne", arguments, {""}, 1)[0]);
}
bool is_less(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  return ordered(evaluation.budget, subject, "<", Bound("lt", arguments, {""}, 1)[0]);
}
bool is_at_most(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  return ordered(evaluation.budget, subject, "<=", Bound("le", arguments, {""}, 1)[0]);
}
bool is_greater(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  return ordered(evaluation.budget, subject, ">", Bound("gt", arguments, {""}, 1)[0]);
}
bool is_at_least(Evaluation& evaluation, const Value& subject, const Arguments& arguments) {
  return ordered(evaluation.budget, subject, ">=", Bound("ge", arguments, {""}, 1)[0]);
}

}  // namespace

Test find_test(std::string_view name) {
  static const std::unordered_map<std::string_view, Test> tests{
      {"defined", plain<is_defined>},
      {"undefined", plain<is_undefined>},
      {"none", plain<is_none>},
      {"boolean", plain<is_boolean>},
      {"true", plain<is_true>},
      {"false", plain<is_false>},
      {"integer", plain<is_integer>},
      {"float", plain<is_float>},
      {"number", plain<is_number>},
      {"string", plain<is_string>},
      {"mapping", plain<is_mapping>},
      {"sequence", plain<is_sequence>},
      {"iterable", plain<is_iterable>},
      {"callable", plain<is_callable>},
      {"escaped", plain<is_escaped>},
      {"filter", plain<is_filter_name>},
      {"test", plain<is_test_name>},
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
