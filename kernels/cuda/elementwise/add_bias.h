#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// out[t, n] += bias[n]; bias [out.cols] f32 in device memory; out [tokens, n] bf16 or f32.
void add_bias(Launch& launch, const float* bias, const Tensor& out);

}  // namespace minfer::cuda
