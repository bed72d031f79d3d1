// The tests that may follow `is`.
#include <algorithm>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/operators.h"
#include "models/chat/jinja/builtins/text_operations.h"

namespace minfer::jinja {
namespace {

/// A test of the value alone.
template <auto is>
Value plain(const Value& subject, const Bound&) {
  return Value(is(subject));
}

bool is_sequence(const Value& value) {
  return value.text() != nullptr || value.dict() != nullptr || value.is_undefined() || value.num_positions();
}
bool is_callable(const Value& value) {
  return value.is_undefined() || (value.object() != nullptr && value.object()->callable());
}
bool is_filter(const Value& value) {
  return value.text() != nullptr && find_filter(value.text()->bytes()) != nullptr;
}
bool is_test(const Value& value) {
  return value.text() != nullptr && find_test(value.text()->bytes()) != nullptr;
}

template <bool (*is_wanted)(char32_t)>
bool has_only_case(const Value& value) {
  return has_case(to_text(value), is_wanted);
}

template <int64_t divisor, int64_t rest>
bool leaves(const Value& value) {
  return equals(apply(BinaryOp::modulo, value, Value(divisor)), Value(rest));
}

Value is_divisible(const Value& subject, const Bound& given) {
  return Value(equals(apply(BinaryOp::modulo, subject, given[0]), Value(int64_t{0})));
}

Value is_same(const Value& subject, const Bound& given) {
  const Value& other = given[0];
  if (subject.identity() != nullptr || other.identity() != nullptr)
    return Value(subject.identity() == other.identity());
  return Value(subject.type_name() == other.type_name() && equals(subject, other));
}

template <CompareOp op>
Value holds(const Value& subject, const Bound& given) {
  return Value(compare(subject, op, given[0]));
}

constexpr Builtin kTests[] = {
    {"defined", {}, 0, plain<[](const Value& v) { return !v.is_undefined(); }>},
    {"undefined", {}, 0, plain<[](const Value& v) { return v.is_undefined(); }>},
    {"none", {}, 0, plain<[](const Value& v) { return v.is_none(); }>},
    {"boolean", {}, 0, plain<[](const Value& v) { return v.boolean() != nullptr; }>},
    {"true", {}, 0, plain<[](const Value& v) { return v.boolean() != nullptr && *v.boolean(); }>},
    {"false", {}, 0, plain<[](const Value& v) { return v.boolean() != nullptr && !*v.boolean(); }>},
    {"integer", {}, 0, plain<[](const Value& v) { return v.integer() && v.boolean() == nullptr; }>},
    {"float", {}, 0, plain<[](const Value& v) { return v.real() != nullptr; }>},
    {"number", {}, 0, plain<[](const Value& v) { return v.is_number(); }>},
    {"string", {}, 0, plain<[](const Value& v) { return v.text() != nullptr; }>},
    {"mapping", {}, 0, plain<[](const Value& v) { return v.dict() != nullptr; }>},
    {"sequence", {}, 0, plain<is_sequence>},
    {"iterable", {}, 0, plain<is_iterable>},
    {"callable", {}, 0, plain<is_callable>},
    {"escaped", {}, 0, plain<[](const Value& v) { return v.text() != nullptr && v.text()->is_markup(); }>},
    {"filter", {}, 0, plain<is_filter>},
    {"test", {}, 0, plain<is_test>},
    {"lower", {}, 0, plain<has_only_case<is_lower>>},
    {"upper", {}, 0, plain<has_only_case<is_upper>>},
    {"odd", {}, 0, plain<leaves<2, 1>>},
    {"even", {}, 0, plain<leaves<2, 0>>},
    {"divisibleby", {"num"}, 1, is_divisible},
    {"sameas", {"other"}, 1, is_same},
    {"in", {"seq"}, 1, holds<CompareOp::in>},
    {"==", {"_"}, 1, holds<CompareOp::equal>},
    {"eq", {"_"}, 1, holds<CompareOp::equal>},
    {"equalto", {"_"}, 1, holds<CompareOp::equal>},
    {"!=", {"_"}, 1, holds<CompareOp::unequal>},
    {"ne", {"_"}, 1, holds<CompareOp::unequal>},
    {"<", {"_"}, 1, holds<CompareOp::less>},
    {"lt", {"_"}, 1, holds<CompareOp::less>},
    {"lessthan", {"_"}, 1, holds<CompareOp::less>},
    {"<=", {"_"}, 1, holds<CompareOp::at_most>},
    {"le", {"_"}, 1, holds<CompareOp::at_most>},
    {">", {"_"}, 1, holds<CompareOp::greater>},
    {"gt", {"_"}, 1, holds<CompareOp::greater>},
    {"greaterthan", {"_"}, 1, holds<CompareOp::greater>},
    {">=", {"_"}, 1, holds<CompareOp::at_least>},
    {"ge", {"_"}, 1, holds<CompareOp::at_least>},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  const auto* found = std::ranges::find(kTests, name, &Builtin::name);
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace minfer::jinja
