#include "kernels/cuda/product/fp8/fp8_stream_launch.cuh"

namespace minfer::cuda {

void fp8_stream_gate_up(Launch& launch, const Fp8Product& product, const StreamPlan& plan) {
  launch_fp8_stream<2, 2, true>(launch, product, plan);
}

}  // namespace minfer::cuda
