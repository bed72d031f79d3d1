#pragma once

#include <concepts>
#include <type_traits>

#include <nlohmann/json.hpp>

namespace minfer {

using OrderedJson = nlohmann::ordered_json;

/// An enum is the name of its value.
template <class Enum>
requires std::is_enum_v<Enum>
void to_json(OrderedJson& json, Enum value) {
  json = name(value);
}

/// Defines the to_json() of a type whose members are in the JSON by their own names, in this order.
#define MINFER_MEMBERS_TO_JSON(Type, ...)                                          \
  static void to_json(OrderedJson& nlohmann_json_j, const Type& nlohmann_json_t) { \
    NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(NLOHMANN_JSON_TO, __VA_ARGS__))       \
  }

}  // namespace minfer
