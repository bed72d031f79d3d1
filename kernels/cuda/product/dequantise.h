#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// Writes rows [first_row, first_row + num_rows) of a matrix as bf16 or f32, row-major without gaps, for
/// products with many tokens. Any device type; cols is a multiple of 4.
void dequantise_rows(Launch& launch, const Weight& matrix, int64_t first_row, int64_t num_rows,
                     DType out_type, void* out);

}  // namespace minfer::cuda
