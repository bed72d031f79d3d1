#include "kernels/cuda/product/stream/stream_kernels.h"
#include "kernels/cuda/product/stream/stream_launch.cuh"

namespace minfer::cuda {

void stream_64_rows(Launch& launch, const PanelArgs& args, const StreamPlan& plan) {
  launch_stream_of<1, false, 128>(launch, args, plan);
}

}  // namespace minfer::cuda
