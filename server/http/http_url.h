#pragma once

#include <string>
#include <string_view>

namespace minfer {

/// `text` without the escapes of URLs (%2F). Anything that is not an escape stays as it is.
std::string percent_decoded(std::string_view text);

}  // namespace minfer
