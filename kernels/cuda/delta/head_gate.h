#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See HeadGateArgs. x f32 or bf16; out f32, bf16 or, with heads of a multiple of 128 and aligned rows, fp8. In place where out has the
/// type of x.
void head_gate(Launch& launch, const HeadGateArgs& args);

}  // namespace minfer::cuda
