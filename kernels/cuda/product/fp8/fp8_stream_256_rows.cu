#include "kernels/cuda/product/fp8/fp8_stream_launch.cuh"

namespace minfer::cuda {

void fp8_stream_256_rows(Launch& launch, const Fp8Product& product, const StreamPlan& plan) {
  launch_fp8_form<Fp8Form<128, 2, 2, false>>(launch, product, plan);
}

}  // namespace minfer::cuda
