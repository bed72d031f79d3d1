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

#define MINFER_ADD_MEMBER(member) json[#member] = value.member;
/// For the body of to_json(json, value): adds members by their own names, in this order.
#define MINFER_ADD_MEMBERS(...) NLOHMANN_JSON_EXPAND(NLOHMANN_JSON_PASTE(MINFER_ADD_MEMBER, __VA_ARGS__))
/// The to_json() of a type that adds these and no more.
#define MINFER_MEMBERS_TO_JSON(Type, ...)                     \
  static void to_json(OrderedJson& json, const Type& value) { \
    MINFER_ADD_MEMBERS(__VA_ARGS__)                           \
  }

}  // namespace minfer
