#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See NormArgs. x f32 or bf16, out f32 or bf16 (fp8 of a plain RMS norm: rms_norm.h), weight and bias f32; out may be x unless it is
/// added to.
void norm(Launch& launch, const NormArgs& args);

}  // namespace minfer::cuda
