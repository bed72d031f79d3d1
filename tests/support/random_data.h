#pragma once

#include <cstdint>
#include <iosfwd>
#include <span>
#include <vector>

#include "kernels/tensor_view.h"

namespace minfer {

/// Prints a type, as a test parameter, by its name.
void PrintTo(DType dtype, std::ostream* out);

}  // namespace minfer

namespace minfer::test {

/// `count` normal values of mean 0, the same for the same seed on every machine.
std::vector<float> normal_values(int64_t count, uint64_t seed, float deviation = 1.0f);

/// 0 to count - 1 in random order.
std::vector<int32_t> permutation(int32_t count, uint64_t seed);

/// Random bytes as `rows` rows of `cols` elements of a type, with scales of moderate size: every bit pattern
/// of the quants occurs, and no element is infinite or NaN.
std::vector<uint8_t> random_weights(DType dtype, int64_t rows, int64_t cols, uint64_t seed);

/// The type that weights of `dtype` have before loading (bf16 for fp8), and a tensor of that type over its random_weights().
DType file_dtype(DType dtype);
HostTensor random_tensor(DType dtype, std::span<const uint8_t> bytes, int64_t count, int64_t rows,
                         int64_t cols);

/// All types of weights, as test parameters: those of files, and fp8.
std::vector<DType> every_dtype();

}  // namespace minfer::test
