#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// See MoeRouteArgs. logits f32 or bf16, at most kMaxExperts columns.
void moe_route(Launch& launch, const MoeRouteArgs& args);

}  // namespace minfer::cuda
