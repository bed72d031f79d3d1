#include "models/grammar/json/schema_complement.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "models/grammar/json/schema_keywords.h"

namespace minfer {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kTypes =
    std::to_array<std::string_view>({"null", "boolean", "object", "array", "string", "number"});

/// No keyword says "a number, but no integer".
std::optional<Json> without_types(const Json& types) {
  const Json list = types.is_array() ? types : Json::array({types});
  const auto has = [&](std::string_view type) { return std::ranges::find(list, Json(type)) != list.end(); };
  for (const Json& type : list) {
    const bool is_known = std::ranges::any_of(kTypes, [&](std::string_view known) { return type == known; });
    if (!is_known && !(type == "integer" && has("number"))) return std::nullopt;
  }
  Json others = Json::array();
  for (const std::string_view type : kTypes) {
    if (!has(type)) others.push_back(type);
  }
  return others.empty() ? Json(false) : Json({{"type", others}});
}

/// One of the members is not there.
std::optional<Json> without_members(const Json& names) {
  if (!names.is_array()) return std::nullopt;
  Json branches = Json::array();
  for (const Json& name : names) {
    if (!name.is_string()) return std::nullopt;
    Json absent = Json::object();
    absent["properties"][name.get_ref<const std::string&>()] = false;
    branches.push_back(std::move(absent));
  }
  if (branches.empty()) return Json(false);
  return Json({{"type", "object"}, {"anyOf", branches}});
}

/// Neither of two is what each is not, and not both is what one of them is not.
std::optional<Json> without_parts(const Json& parts, const char* joined_by) {
  if (!parts.is_array() || parts.empty()) return std::nullopt;
  Json complements = Json::array();
  for (const Json& part : parts) {
    std::optional<Json> complement = complement_of(part);
    if (!complement) return std::nullopt;
    complements.push_back(*std::move(complement));
  }
  return Json({{joined_by, complements}});
}

std::optional<Json> without_keyword(std::string_view name, const Json& value) {
  if (name == "type") return without_types(value);
  if (name == "required") return without_members(value);
  if (name == "anyOf") return without_parts(value, "allOf");
  if (name == "allOf") return without_parts(value, "anyOf");
  return std::nullopt;
}

}  // namespace

std::optional<Json> complement_of(const Json& schema) {
  if (schema.is_boolean()) return Json(!schema.get<bool>());
  if (!schema.is_object()) return std::nullopt;
  Json complements = Json::array();
  for (const auto& [name, value] : schema.get_ref<const Json::object_t&>()) {
    if (is_annotation(name)) continue;
    std::optional<Json> complement = without_keyword(name, value);
    if (!complement) return std::nullopt;
    complements.push_back(*std::move(complement));
  }
  if (complements.empty()) return Json(false);
  return complements.size() == 1 ? complements[0] : Json({{"anyOf", complements}});
}

}  // namespace minfer
