#include "kernels/cuda/moe/stream/expert_tile_launch.cuh"

namespace minfer::cuda {

template void launch_expert_tiles<DType::lut4>(Launch& launch, const MoeProduct& product);

}  // namespace minfer::cuda
