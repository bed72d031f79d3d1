#pragma once

#include <stdexcept>

namespace minfer {

/// A mistake of a caller, a file or a device. The message names the thing, what was expected and
/// what was found.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file that cannot be used: missing, malformed, truncated or of an unsupported kind.
class FileError : public Error {
 public:
  using Error::Error;
};

/// An error that a device reported. After a sticky one (for example an illegal access) nothing more can
/// run on the device: the process ends.
class DeviceError : public Error {
 public:
  using Error::Error;
};

}  // namespace minfer
