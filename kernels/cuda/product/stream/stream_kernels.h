#pragma once

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/product/operands/product_args.h"

/// The kernels behind stream_product(): see kernels/cuda/instances.cmake.
namespace minfer::cuda {

/// By a plan with so many warpgroups: 1 or 2, of gate and up 2.
template <int kWarpgroups, bool kGateUp>
void launch_stream_of(Launch& launch, const ProductArgs& args, const StreamPlan& plan);

}  // namespace minfer::cuda
