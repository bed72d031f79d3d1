#include "kernels/cuda/product/tile_stream/tile_stream_launch.cuh"

namespace minfer::cuda {

template void launch_tile_stream<DType::q4_1>(Launch& launch, const PanelArgs& args, const StreamPlan& plan);

}  // namespace minfer::cuda
