#pragma once

#include <cstdint>

#include "tests/reference/ops.h"

namespace minfer::reference {

/// Element `k` of the block at `block`, by the description of the formats (ggml's ggml-common.h and its
/// quantisation reference): computed per element and from byte offsets, independent of the kernels' code.
double element(DType dtype, const uint8_t* block, int k);

/// Sign, four bits of exponent, three of mantissa.
double e4m3(uint8_t bits);

/// `rows` rows of `cols` elements.
Matrix dequantise(const void* data, DType dtype, int64_t rows, int64_t cols);

}  // namespace minfer::reference
