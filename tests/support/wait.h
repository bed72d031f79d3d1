#pragma once

#include <chrono>
#include <thread>
#include <utility>

namespace minfer::test {

/// Longer than anything takes that a test waits for, on a slow machine, beside other programs and under a sanitizer. A test
/// whose condition does not come fails; one that passes never waits so long.
inline constexpr std::chrono::seconds kPatience{120};

/// Waits until `holds()` is true. False: it is not when `patience` is over.
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
