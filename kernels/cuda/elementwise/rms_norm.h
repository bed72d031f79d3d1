#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// out = x / sqrt(mean(x^2) + eps) * weight, per row. x f32 or bf16, out f32 or bf16, weight [1, cols] f32;
/// out may be x.
void rms_norm(Launch& launch, const Tensor& x, const Weight& weight, float eps, const Tensor& out);

}  // namespace minfer::cuda
