#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

inline constexpr int kMaxRoutedExperts = 512;

/// See MoeRouteArgs. logits f32 or bf16, at most kMaxRoutedExperts columns.
void moe_route(Launch& launch, const MoeRouteArgs& args);

}  // namespace minfer::cuda
