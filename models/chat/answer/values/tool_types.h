#pragma once

#include <cstdint>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace minfer::answers {

/// Types of JSON values, as a set of bits.
using JsonTypes = uint8_t;
inline constexpr JsonTypes kAnyType = 0;  ///< nothing is known
inline constexpr JsonTypes kString = 1;
inline constexpr JsonTypes kNumber = 2;
inline constexpr JsonTypes kBoolean = 4;
inline constexpr JsonTypes kNull = 8;
inline constexpr JsonTypes kObject = 16;
inline constexpr JsonTypes kArray = 32;

/// The type of a JSON value by its first byte.
JsonTypes type_of_json(char first);

/// The types that a schema names in `type`, or else in `const` or `enum`; those within alternatives are ignored.
JsonTypes types_of(const nlohmann::ordered_json& schema);

/// The functions of a request's tools and the types of their parameters. A view: the tools must outlive it.
class ToolTypes {
 public:
  /// `tools`: as in a request, `[{"type": "function", "function": {"name", "parameters": JSON schema}}]`. Any shape is accepted; parts
  /// that are not understood are ignored. Null: nothing is known.
  explicit ToolTypes(const nlohmann::ordered_json* tools) : tools_(tools) {}

  bool is_known() const { return tools_ != nullptr; }
  bool has_function(std::string_view function) const { return find_function(function) != nullptr; }
  /// The types that a parameter's schema allows (`type`, or the types in `anyOf`, `oneOf` and `enum`).
  JsonTypes parameter(std::string_view function, std::string_view parameter) const;

 private:
  const nlohmann::ordered_json* find_function(std::string_view function) const;

  const nlohmann::ordered_json* tools_;
};

}  // namespace minfer::answers
