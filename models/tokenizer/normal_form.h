#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// `text` in Unicode normal form C (UAX #15). Bytes that are not UTF-8 stay as they are. Runs of combining
/// marks beyond any language's are normalised in parts, so that the time is linear.
std::string to_nfc(std::string_view text);

}  // namespace minfer
