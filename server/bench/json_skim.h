#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace minfer {

/// Looks into JSON text without building a document: for streams of small objects of which a few members are
/// wanted (with it an event of a completion's stream costs 0.4 us, as a nlohmann document 2.5 us: see
/// tests/benchmarks/load_generator_benchmark.cpp). Values are views of the text. Finds the right member in
/// any valid JSON; text that is not JSON gives some view of itself or an empty one, never a read beyond it.

/// The value of a member of the object, as it stands in the text; empty if it has none by that name or is no
/// object. `name` holds nothing that JSON escapes.
std::string_view json_member(std::string_view object, std::string_view name);

/// Several members in one walk: values[i] is the value of names[i], as json_member has it.
void json_members(std::string_view object, std::span<const std::string_view> names,
                  std::span<std::string_view> values);

/// The first element of the array; empty if it has none or is no array.
std::string_view json_first(std::string_view array);

/// Whether a member has a value that says something: it is there and not null.
inline bool json_present(std::string_view value) {
  return !value.empty() && value != "null";
}

/// An integer's value; `otherwise` if it is none.
int64_t json_integer(std::string_view value, int64_t otherwise);

/// A string's text, decoded; empty if it is no valid string.
std::string json_text(std::string_view value);

}  // namespace minfer
