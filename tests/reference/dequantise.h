#pragma once

#include <cstdint>

#include "tests/reference/ops.h"

namespace minfer::reference {

/// Element `k` of the block at `block`, from the description of the formats (ggml's ggml-common.h and its
/// quantisation reference): written per element and from byte offsets, apart from what the kernels use.
double element(DType dtype, const uint8_t* block, int k);

/// Sign, four bits of exponent, three of mantissa.
double e4m3(uint8_t bits);

/// `rows` rows of `cols` elements.
Matrix dequantise(const void* data, DType dtype, int64_t rows, int64_t cols);

}  // namespace minfer::reference
