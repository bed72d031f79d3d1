#pragma once

#include "kernels/cuda/product/panel_product.h"
#include "kernels/cuda/product/stream_plan.h"

/// The kernels behind tile_stream_product(), one file of instantiations a type.
namespace minfer::cuda {

/// By a plan of tile_stream_plan().
template <DType type>
void launch_tile_stream(Launch& launch, const PanelArgs& args, const StreamPlan& plan);

}  // namespace minfer::cuda
