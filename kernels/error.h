#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace minfer {

/// What a caller, a file or a device got wrong. The message names the thing, what was expected and what was
/// found.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file that cannot be used: missing, malformed, truncated or of an unsupported kind.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Throws `E` (default Error) with a formatted message.
template <class E = Error, class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace minfer
