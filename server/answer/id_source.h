#pragma once

#include <random>
#include <string>
#include <string_view>

namespace minfer {

/// Draws ids that nobody else has and that cannot be guessed. One thread.
class IdSource {
 public:
  /// `prefix` and `length` letters and digits.
  std::string draw(std::string_view prefix, int length = 24);

 private:
  std::random_device random_;
};

}  // namespace minfer
