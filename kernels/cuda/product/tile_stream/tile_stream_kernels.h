#pragma once

#include "kernels/cuda/choice/stream_plan.h"
#include "kernels/cuda/product/panel_product.h"

/// The kernels behind tile_stream_product(): see kernels/cuda/instances.cmake.
namespace minfer::cuda {

/// By a plan of tile_stream_plan().
template <DType type>
void launch_tile_stream(Launch& launch, const PanelArgs& args, const StreamPlan& plan);

/// Two matrices of different types past the same tokens in one launch, if there is a kernel for it and each block has a tile: whether
/// there was. Both as is_tile_streamable() asks.
bool tile_stream_pair(Launch& launch, DType type, const PanelArgs& first, DType other,
                      const PanelArgs& second);

}  // namespace minfer::cuda
