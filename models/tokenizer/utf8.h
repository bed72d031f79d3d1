#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace minfer {

/// The first unit of a byte string, read as UTF-8 (RFC 3629: no surrogates, no overlong forms, at most U+10FFFF).
struct Utf8Unit {
  enum class Kind {
    character,   ///< a whole character of `length` bytes
    invalid,     ///< `length` bytes that no following byte can make a character
    incomplete,  ///< all `length` bytes that are left begin a character and end before it does
  };
  Kind kind;
  size_t length;       ///< at least 1
  char32_t character;  ///< U+FFFD unless kind is character
};

/// Reads the first unit of `bytes`, which is not empty. An invalid unit is a maximal subpart as Unicode
/// (chapter 3.9) and WHATWG define it, so one U+FFFD for each gives what browsers and Python give.
Utf8Unit read_utf8(std::string_view bytes);

/// The number of bytes at the front of `bytes` that form whole characters.
size_t valid_utf8_prefix(std::string_view bytes);

/// Moves all decided units from the front of `bytes` to the result: characters unchanged, and U+FFFD for
/// invalid units. Leaves in `bytes` nothing, or the beginning of a character.
std::string take_complete_utf8(std::string& bytes);

/// `bytes` with U+FFFD for everything that is not UTF-8.
std::string replace_invalid_utf8(std::string_view bytes);

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

/// `text` in Unicode normal form C (UAX #15). Bytes that are not UTF-8 stay as they are. Runs of combining
/// marks beyond any language's are normalised in parts, so that the time is linear.
std::string to_nfc(std::string_view text);

}  // namespace minfer
