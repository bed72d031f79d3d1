#pragma once

#include <utility>

#include <fmt/format.h>

#include "kernels/base/error_types.h"

namespace minfer {

/// Throws `E` (default Error) with a formatted message.
template <class E = Error, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace minfer
