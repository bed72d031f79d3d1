#include "kernels/cuda/product/stream/stream_kernels.h"
#include "kernels/cuda/product/stream/stream_launch.cuh"

namespace minfer::cuda {

void stream_128_rows(Launch& launch, const PanelArgs& args, const StreamPlan& plan) {
  launch_stream_of<2, false, 256>(launch, args, plan);
}

}  // namespace minfer::cuda
