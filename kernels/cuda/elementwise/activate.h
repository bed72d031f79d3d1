#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See ActivateArgs: x and out both f32 or both bf16.
void activate(Launch& launch, const ActivateArgs& args);

}  // namespace minfer::cuda
