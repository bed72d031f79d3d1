#pragma once

#include <optional>

#include <nlohmann/json.hpp>

namespace minfer {

/// A schema of all values that the given one does not allow; null where none is known. That of types, of required members, and of anyOf and
/// allOf of such is: the result is about as long as what it is made of.
std::optional<nlohmann::ordered_json> complement_of(const nlohmann::ordered_json& schema);

}  // namespace minfer
