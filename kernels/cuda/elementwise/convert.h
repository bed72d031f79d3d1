#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// out = x as f16, rows without gaps: exact but for values below 2^-14, which lose bits, and above 65504,
/// which become that. x bf16 [tokens, cols]; cols a multiple of 8, rows of x 16-byte aligned.
void convert_to_f16(Launch& launch, const Tensor& x, void* out);

}  // namespace minfer::cuda
