#include "models/chat/jinja/builtins/operators.h"

#include <algorithm>
#include <cmath>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/number_format.h"
#include "models/chat/jinja/value/print.h"
#include "models/gguf/printable.h"

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
  Rendering::require(count, unit.size() * sizeof(Value));
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
