#pragma once

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/product/operands/product_args.h"

/// The kernels behind tile_stream_product(): see kernels/cuda/instances.cmake.
namespace minfer::cuda {

/// Takes a plan of tile_stream_plan().
template <DType type>
void launch_tile_stream(Launch& launch, const ProductArgs& args, const StreamPlan& plan);

/// Two matrices of different types times the same tokens in one launch, if there is a kernel for it and each
/// block has a tile; returns whether it was launched. Both are products that ProductKernel::tile_stream takes.
bool tile_stream_pair(Launch& launch, DType type, const ProductArgs& first, DType other,
                      const ProductArgs& second);

}  // namespace minfer::cuda
