#include "models/chat/jinja/value/operators.h"

#include <cmath>

#include "models/chat/jinja/value/number_format.h"
#include "models/chat/jinja/value/print.h"

namespace minfer::jinja {
namespace {

std::string_view symbol(BinaryOp op) {
  constexpr std::string_view kBinarySymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kBinarySymbols[static_cast<size_t>(op)];
}

[[noreturn]] void fail_overflow(BinaryOp op, int64_t left, int64_t right) {
  fail<TemplateError>("{} {} {} does not fit into 64 bits", left, symbol(op), right);
}

int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

int64_t modulo(int64_t a, int64_t b) {
  const int64_t rest = b == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

double modulo(double a, double b) {
  const double rest = std::fmod(a, b);
  if (rest == 0.0) return std::copysign(0.0, b);
  return (rest < 0.0) != (b < 0.0) ? rest + b : rest;
}

Value power_of_integers(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail<TemplateError>("0 to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (int64_t square = base, rest = exponent; rest > 0; rest /= 2) {
    if (rest % 2 == 1 && __builtin_mul_overflow(result, square, &result))
      fail_overflow(BinaryOp::power, base, exponent);
    if (rest > 1 && __builtin_mul_overflow(square, square, &square))
      fail_overflow(BinaryOp::power, base, exponent);
  }
  return Value(result);
}

Value apply_integers(BinaryOp op, int64_t a, int64_t b) {
  if (op == BinaryOp::power) return power_of_integers(a, b);
  int64_t result = 0;
  if (op == BinaryOp::add || op == BinaryOp::subtract || op == BinaryOp::multiply) {
    const bool overflows = op == BinaryOp::add        ? __builtin_add_overflow(a, b, &result)
                           : op == BinaryOp::subtract ? __builtin_sub_overflow(a, b, &result)
                                                      : __builtin_mul_overflow(a, b, &result);
    if (overflows) fail_overflow(op, a, b);
    return Value(result);
  }
  if (b == 0) fail<TemplateError>("{} {} 0: division by zero", a, symbol(op));
  if (op == BinaryOp::divide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (op == BinaryOp::modulo) return Value(modulo(a, b));
  if (b == -1 && a == INT64_MIN) fail_overflow(op, a, b);
  return Value(floor_divide(a, b));
}

Value apply_reals(BinaryOp op, double a, double b) {
  if (op == BinaryOp::add) return Value(a + b);
  if (op == BinaryOp::subtract) return Value(a - b);
  if (op == BinaryOp::multiply) return Value(a * b);
  if (op == BinaryOp::power) {
    const double result = std::pow(a, b);
    if (a == 0.0 && b < 0.0) fail<TemplateError>("0 to a negative power");
    if (!std::isfinite(result) && std::isfinite(a) && std::isfinite(b))
      fail<TemplateError>("{} ** {} is no number a float can hold", a, b);
    return Value(result);
  }
  if (b == 0.0) fail<TemplateError>("{} {} 0: division by zero", a, symbol(op));
  if (op == BinaryOp::divide) return Value(a / b);
  if (op == BinaryOp::modulo) return Value(modulo(a, b));
  const double floor = std::floor((a - modulo(a, b)) / b + 0.5);
  return Value(floor == 0.0 ? std::copysign(0.0, a / b) : floor);
}

Value concatenate(const Text& left, const Text& right) {
  Text out;
  const bool markup = left.is_markup() || right.is_markup();
  markup && !left.is_markup() ? append_html(out, left) : out.append(left);
  markup && !right.is_markup() ? append_html(out, right) : out.append(right);
  out.set_markup(markup);
  return Value(std::move(out));
}

Value make_same(const Value& kind, Items items) {
  return kind.is_list() ? make_list(std::move(items)) : make_tuple(std::move(items));
}

Value repeat(const Value& value, int64_t times) {
  const size_t count = times > 0 ? static_cast<size_t>(times) : 0;
  if (const Text* text = value.text()) {
    Text out;
    out.repeat(*text, count);
    return Value(std::move(out));
  }
  const Items& unit = value.sequence()->items;
  const bool fits = unit.empty() || count <= SIZE_MAX / sizeof(Value) / unit.size();
  Rendering::require(fits ? count * unit.size() * sizeof(Value) : SIZE_MAX);
  Items items;
  items.reserve(count * unit.size());
  for (size_t i = 0; i < (unit.empty() ? 0 : count); ++i)
    items.insert(items.end(), unit.begin(), unit.end());
  return make_same(value, std::move(items));
}

/// `item in container`.
bool contains(const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    const Text* part = item.text();
    if (part == nullptr)
      fail<TemplateError>("'in' a text: expected a text to look for, found '{}'", item.type_name());
    Rendering::scan(text->size());
    return find_bytes(text->bytes(), part->bytes()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) return dict->find(item) != nullptr;
  const std::shared_ptr<Iterator> iterator = iterate(container);
  while (const std::optional<Value> element = iterator->next())
    if (equals(*element, item)) return true;
  return false;
}

}  // namespace

Value apply(BinaryOp op, const Value& left, const Value& right) {
  if (op == BinaryOp::modulo && left.text() != nullptr) return format_percent(*left.text(), right);
  left.require_defined();
  right.require_defined();
  if (left.integer() && right.integer()) return apply_integers(op, *left.integer(), *right.integer());
  if (left.is_number() && right.is_number()) return apply_reals(op, *left.number(), *right.number());
  const auto repeatable = [](const Value& value) {
    return value.text() != nullptr || value.sequence() != nullptr;
  };
  if (op == BinaryOp::multiply && repeatable(left) && right.integer()) return repeat(left, *right.integer());
  if (op == BinaryOp::multiply && repeatable(right) && left.integer()) return repeat(right, *left.integer());
  if (op == BinaryOp::add) {
    if (left.text() != nullptr && right.text() != nullptr) return concatenate(*left.text(), *right.text());
    if (left.sequence() != nullptr && right.sequence() != nullptr && left.is_list() == right.is_list()) {
      Items items = left.sequence()->items;
      items.insert(items.end(), right.sequence()->items.begin(), right.sequence()->items.end());
      return make_same(left, std::move(items));
    }
  }
  fail<TemplateError>("unsupported operands for {}: '{}' and '{}'", symbol(op), left.type_name(),
                      right.type_name());
}

Value negate(const Value& operand, UnaryOp op) {
  operand.require_defined();
  const bool plus = op == UnaryOp::plus;
  if (const auto integer = operand.integer())
    return plus ? Value(*integer) : apply_integers(BinaryOp::subtract, 0, *integer);
  if (const double* real = operand.real()) return Value(plus ? *real : -*real);
  fail<TemplateError>("a sign in front of '{}', expected a number", operand.type_name());
}

bool compare(const Value& left, CompareOp op, const Value& right) {
  if (op == CompareOp::equal) return equals(left, right);
  if (op == CompareOp::unequal) return !equals(left, right);
  if (op == CompareOp::in) return contains(right, left);
  if (op == CompareOp::not_in) return !contains(right, left);
  return ordered(left, op, right);
}

size_t find_bytes(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace minfer::jinja
