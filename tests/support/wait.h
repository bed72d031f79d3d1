#pragma once

#include <chrono>
#include <thread>
#include <utility>

namespace minfer::test {

/// Longer than anything that a test waits for takes on a slow machine, beside other programs and under a sanitizer. A test
/// whose condition never holds fails; a test that passes never waits this long.
inline constexpr std::chrono::seconds kPatience{120};

/// Waits until `holds()` is true. Returns false if it is not true within `patience`.
template <class Condition>
[[nodiscard]] bool wait_until(Condition&& holds, std::chrono::milliseconds patience = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!std::forward<Condition>(holds)()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace minfer::test
