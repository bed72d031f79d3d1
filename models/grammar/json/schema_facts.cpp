#include "models/grammar/json/schema_facts.h"

#include <cmath>

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kExact = 9007199254740992;  // 2 ^ 53

bool is_whole(double number) {
  return std::isfinite(number) && std::trunc(number) == number;
}

size_t num_characters(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

/// True if the number is above the other one, or, with a sign of -1, below; `also_equal`: or equal.
bool is_beyond(const Json& number, const Json& other, int sign, bool also_equal) {
  const long double above =
      (number.get<long double>() - other.get<long double>()) * static_cast<long double>(sign);
  return above > 0 || (above == 0 && also_equal);
}

bool is_stricter(const SchemaFacts::Limit& limit, const SchemaFacts::Limit& known, int sign) {
  return known.number == nullptr || is_beyond(*limit.number, *known.number, sign, limit.excluded);
}

}  // namespace

JsonTypes type_of(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return kNull;
    case Json::value_t::boolean:
      return kBoolean;
    case Json::value_t::object:
      return kObject;
    case Json::value_t::array:
      return kArray;
    case Json::value_t::string:
      return kString;
    case Json::value_t::number_float:
      return is_whole(value.get<double>()) ? kInteger : kFraction;
    default:
      return kInteger;
  }
}

bool is_rounded(const Json& value) {
  return value.is_number_float() && std::abs(value.get<double>()) >= kExact;
}

std::string identity_of(const Json& value) {
  if (value.is_number_float() && is_whole(value.get<double>()) && std::abs(value.get<double>()) < kExact)
    return std::to_string(static_cast<int64_t>(value.get<double>()));
  if (!value.is_structured()) return value.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::vector<std::string> parts;
  for (const auto& [name, item] : value.items()) {
    std::string part = identity_of(item);
    if (value.is_object())
      part = Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ":" + part;
    parts.push_back(std::move(part));
  }
  if (value.is_object()) std::ranges::sort(parts);
  std::string identity(1, value.is_object() ? '{' : '[');
  for (const std::string& part : parts)
    identity += part + ",";
  return identity;
}

void SchemaFacts::Limit::raise(const Limit& limit) {
  if (is_stricter(limit, *this, 1)) *this = limit;
}

void SchemaFacts::Limit::lower(const Limit& limit) {
  if (is_stricter(limit, *this, -1)) *this = limit;
}

void SchemaFacts::Scalars::add(const Json& value) {
  identities.insert(identity_of(value));
  if (value.is_string()) strings.push_back(value.get_ref<const std::string&>());
  if (value.is_number()) numbers.push_back(&value);
}

bool SchemaFacts::excludes(const Json& scalar) const {
  return std::ranges::any_of(excluded, [&](const Scalars* scalars) { return scalars->contains(scalar); });
}

bool admits_scalar(const SchemaFacts& facts, const Json& value) {
  if ((facts.types & type_of(value)) == 0 || facts.excludes(value)) return false;
  if (value.is_string()) return facts.length.hold(num_characters(value.get_ref<const std::string&>()));
  if (!value.is_number()) return true;
  const auto number = value.get<long double>();
  const auto breaks = [&](const SchemaFacts::Limit& limit, int sign) {
    return limit.number != nullptr && is_beyond(value, *limit.number, sign, limit.excluded);
  };
  const bool is_multiple = std::ranges::all_of(facts.divisors, [&](const SchemaFacts::Keyword& divisor) {
    const auto by = divisor.value->get<long double>();
    if (value.is_number_integer() && divisor.value->is_number_integer()) return std::fmod(number, by) == 0;
    const long double quotient = number / by;  // of decimals: 0.07 / 0.01 is not quite 7
    return std::abs(quotient - std::round(quotient)) <= std::abs(quotient) * 1e-12L;
  });
  return !breaks(facts.min, -1) && !breaks(facts.max, 1) && is_multiple;
}

}  // namespace minfer
