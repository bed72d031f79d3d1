#pragma once

#include <cstdint>
#include <cstdlib>

namespace minfer::test {

inline constexpr const char* kOperationsVariable = "MINFER_TEST_OPS";
inline constexpr const char* kSeedVariable = "MINFER_TEST_SEED";

inline int64_t environment_number(const char* variable, int64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoll(text, nullptr, 10);
}

/// The number of operations of a random test: $MINFER_TEST_OPS, or a number that takes a second or two.
inline int64_t num_random_operations() {
  return environment_number(kOperationsVariable, 200'000);
}

/// The first seed of a random test: $MINFER_TEST_SEED, to repeat a failure, or 1.
inline uint64_t first_seed() {
  return static_cast<uint64_t>(environment_number(kSeedVariable, 1));
}

}  // namespace minfer::test
