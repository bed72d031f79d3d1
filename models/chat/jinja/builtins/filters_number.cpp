// Filters that make numbers.
#include <cmath>
#include <cstdlib>

#include "models/chat/jinja/builtins/arguments.h"
#include "models/chat/jinja/builtins/filter_table.h"
#include "models/chat/jinja/value/number_format.h"
#include "models/chat/jinja/value/operators.h"

namespace minfer::jinja {
namespace {

/// Python's int(float); nothing for infinities and NaN. Throws if it does not fit.
std::optional<int64_t> truncate(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  if (std::abs(value) >= 0x1p63) fail<TemplateError>("int: {} does not fit into 64 bits", value);
  return static_cast<int64_t>(value);
}

Value int_filter(const Value& subject, const Arguments& arguments) {
  const Bound bound("int", arguments, {"default", "base"});
  subject.require_defined();
  const Value absent = bound.has(0) ? bound[0] : Value(int64_t{0});
  if (const auto integer = subject.integer()) return Value(*integer);
  std::optional<double> real = subject.number();
  if (const Text* text = subject.text()) {
    if (const auto integer = parse_integer(text->bytes(), bound.integer(1, 10))) return Value(*integer);
    real = parse_real(text->bytes());
  }
  const std::optional<int64_t> whole = real ? truncate(*real) : std::nullopt;
  return whole ? Value(*whole) : absent;
}

Value float_filter(const Value& subject, const Arguments& arguments) {
  const Bound bound("float", arguments, {"default"});
  subject.require_defined();
  std::optional<double> real = subject.number();
  if (const Text* text = subject.text()) real = parse_real(text->bytes());
  if (real) return Value(*real);
  return bound.has(0) ? bound[0] : Value(0.0);
}

Value abs_filter(const Value& subject, const Arguments& arguments) {
  Bound("abs", arguments, {});
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

Value round_filter(const Value& subject, const Arguments& arguments) {
  const Bound bound("round", arguments, {"precision", "method"});
  const int64_t precision = bound.integer(0, 0);
  const std::string_view method = bound.has(1) ? std::string_view(bound.text(1).bytes()) : "common";
  subject.require_defined();
  const auto value = subject.number();
  if (!value) fail<TemplateError>("round: '{}', expected a number", subject.type_name());
  if (method == "common") {
    if (subject.integer() && precision >= 0) return Value(*subject.integer());
    const double rounded = round_decimal(*value, precision);
    return subject.integer() ? Value(truncate(rounded).value_or(0)) : Value(rounded);
  }
  if (method != "ceil" && method != "floor")
    fail<TemplateError>("round: method '{}', expected common, ceil or floor", method);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return Value((method == "ceil" ? std::ceil(*value * scale) : std::floor(*value * scale)) / scale);
}

Value length(const Value& subject, const Arguments& arguments) {
  Bound("length", arguments, {});
  const std::optional<size_t> size = length_of(subject);
  if (!size) fail<TemplateError>("'{}' has no length", subject.type_name());
  return Value(static_cast<int64_t>(*size));
}

Value sum(const Value& subject, const Arguments& arguments) {
  const Bound bound("sum", arguments, {"attribute", "start"});
  const AttributePath path(bound[0]);
  Value total = bound.has(1) ? bound[1] : Value(int64_t{0});
  if (total.text() != nullptr) fail<TemplateError>("sum: start is a text, expected a number or a list");
  const std::shared_ptr<Iterator> iterator = iterate(subject);
  while (std::optional<Value> item = iterator->next())
    total = apply(BinaryOp::add, total, path.read(*std::move(item)));
  return total;
}

}  // namespace

FilterEntries number_filters() {
  return {{"int", int_filter}, {"float", float_filter}, {"abs", abs_filter}, {"round", round_filter},
          {"length", length},  {"count", length},       {"sum", sum}};
}

}  // namespace minfer::jinja
