#include "kernels/cuda/product/fp8/fp8_gemm_launch.cuh"

namespace minfer::cuda {

void fp8_gemm(Launch& launch, const Fp8Product& product, const Fp8GemmPlan& plan) {
  plan.warpgroups == 2 ? launch_fp8_gemm<Fp8GemmForm<2, false>>(launch, product, plan.clusters)
                       : launch_fp8_gemm<Fp8GemmForm<3, false>>(launch, product, plan.clusters);
}

}  // namespace minfer::cuda
