#pragma once

#include "kernels/cuda/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See MoeRouteArgs. logits f32 or bf16.
void moe_route(Launch& launch, const MoeRouteArgs& args);

}  // namespace minfer::cuda
