#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "kernels/dtype.h"

namespace minfer {

/// As a parameter of tests, a type prints as its name.
void PrintTo(DType dtype, std::ostream* out);

}  // namespace minfer

namespace minfer::test {

/// `count` normal values of mean 0, the same for the same seed on every machine.
std::vector<float> normal_values(int64_t count, uint64_t seed, float deviation = 1.0f);

/// 0 to count - 1 in random order.
std::vector<int32_t> permutation(int32_t count, uint64_t seed);

/// Random bytes as `rows` rows of `cols` elements of a type, with scales of moderate size: every bit pattern
/// of the quants occurs, no element is infinite or NaN.
std::vector<uint8_t> random_weights(DType dtype, int64_t rows, int64_t cols, uint64_t seed);

/// All types of weights, as parameters of tests.
std::vector<DType> every_dtype();

}  // namespace minfer::test
