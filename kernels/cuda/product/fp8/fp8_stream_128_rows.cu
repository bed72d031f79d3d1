#include "kernels/cuda/product/fp8/fp8_stream_launch.cuh"

namespace minfer::cuda {

void fp8_stream_128_rows(Launch& launch, const Fp8Product& product, const StreamPlan& plan) {
  launch_fp8_stream<2, 1, false>(launch, product, plan);
}

}  // namespace minfer::cuda
