#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "server/api/fields/api_error.h"

namespace minfer {

// Parsing a body takes memory and time in proportion to its size, whatever it holds. The limits guard against
// deep nesting, members that are looked up one by one, and values that are larger parsed than written.
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonMembers = 1024;     ///< of one object
inline constexpr size_t kMaxJsonValues = 1u << 20;  ///< of a whole body

/// Parses the JSON object in a request's body. Throws ApiError (400) for anything else: no JSON (naming line
/// and column), invalid UTF-8, numbers beyond a double, a member named twice, more than the limits above.
nlohmann::ordered_json parse_json_body(std::string_view body);

/// A value as a message may show it: about 60 characters at most.
std::string describe(const nlohmann::ordered_json& value);

}  // namespace minfer
