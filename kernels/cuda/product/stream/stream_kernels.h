#pragma once

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/product/operands/product_args.h"

/// The kernels behind stream_product(): see kernels/cuda/instances.cmake.
namespace minfer::cuda {

/// For a plan with kWarpgroups warpgroups: 1 or 2, for gate and up 2.
template <int kWarpgroups, bool kGateUp>
void launch_stream_of(Launch& launch, const ProductArgs& args, const StreamPlan& plan);

}  // namespace minfer::cuda
