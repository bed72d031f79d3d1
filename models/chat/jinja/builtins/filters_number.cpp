// Filters that make numbers.
#include <cmath>
#include <cstdlib>

#include "models/chat/jinja/builtins/functions.h"
#include "models/chat/jinja/builtins/number_format.h"
#include "models/chat/jinja/builtins/operators.h"

namespace minfer::jinja {
namespace {

/// Python's int(float); nothing for infinities and NaN. Throws if it does not fit.
std::optional<int64_t> truncate(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 0x1p63) fail<TemplateError>("int: {} does not fit into 64 bits", value);
  return static_cast<int64_t>(value);
}

std::optional<double> real_of(const Value& subject) {
  return subject.text() != nullptr ? parse_real(subject.text()->bytes()) : subject.number();
}

Value int_filter(const Value& subject, const Bound& given) {
  subject.require_defined();
  if (const auto integer = subject.integer()) return Value(*integer);
  if (const Text* text = subject.text()) {
    if (const auto integer = parse_integer(text->bytes(), given.integer(1, 10))) return Value(*integer);
  }
  const std::optional<double> real = real_of(subject);
  const std::optional<int64_t> whole = real ? truncate(*real) : std::nullopt;
  return whole ? Value(*whole) : given.get(0, Value(int64_t{0}));
}

Value float_filter(const Value& subject, const Bound& given) {
  subject.require_defined();
  const std::optional<double> real = real_of(subject);
  return real ? Value(*real) : given.get(0, Value(0.0));
}

Value abs_filter(const Value& subject, const Bound&) {
  subject.require_defined();
  if (const auto integer = subject.integer())
    return *integer < 0 ? negate(subject, UnaryOp::negate) : Value(*integer);
  if (const double* real = subject.real()) return Value(std::abs(*real));
  fail<TemplateError>("abs: '{}', expected a number", subject.type_name());
}

/// To `digits` decimal places from the exact value, halves to even.
double round_decimal(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 330) return value;
  if (digits < -330) return 0.0;
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(-digits));
    return std::isfinite(scale) ? std::nearbyint(value / scale) * scale : 0.0;
  }
  return std::strtod(fmt::format("{:.{}f}", value, digits).c_str(), nullptr);
}

Value round_filter(const Value& subject, const Bound& given) {
  const int64_t precision = given.integer(0, 0);
  const Text method = given.text(1, "common");
  subject.require_defined();
  const auto value = subject.number();
  if (!value) fail<TemplateError>("round: '{}', expected a number", subject.type_name());
  if (method.bytes() == "common") {
    if (subject.integer() && precision >= 0) return Value(*subject.integer());
    const double rounded = round_decimal(*value, precision);
    return subject.integer() ? Value(truncate(rounded).value_or(0)) : Value(rounded);
  }
  const bool up = method.bytes() == "ceil";
  if (!up && method.bytes() != "floor")
    fail<TemplateError>("round: method '{}', expected common, ceil or floor", method.bytes());
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return Value((up ? std::ceil(*value * scale) : std::floor(*value * scale)) / scale);
}

}  // namespace

std::span<const Builtin> number_filters() {
  static constexpr Builtin kFilters[] = {{"int", {"default", "base"}, 0, int_filter},
                                         {"float", {"default"}, 0, float_filter},
                                         {"abs", {}, 0, abs_filter},
                                         {"round", {"precision", "method"}, 0, round_filter}};
  return kFilters;
}

}  // namespace minfer::jinja
