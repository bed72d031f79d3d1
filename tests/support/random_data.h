#pragma once

#include <cstdint>
#include <vector>

namespace minfer::test {

/// `count` normal values of mean 0, the same for the same seed on every machine.
std::vector<float> normal_values(int64_t count, uint64_t seed, float deviation = 1.0f);

/// 0 to count - 1 in random order.
std::vector<int32_t> permutation(int32_t count, uint64_t seed);

}  // namespace minfer::test
