#pragma once

#include "kernels/cuda/choice/fp8_gemm_plan.h"
#include "kernels/cuda/product/fp8/fp8_stream_kernels.h"

namespace minfer::cuda {

/// See fp8_gemm.cuh. rows is a multiple of 256 (for gate and up: of 128), cols of 128. Gate and up go to
/// product.out. Instantiated by kernels/cuda/instances.cmake.
template <bool kGateUp>
void fp8_gemm(Launch& launch, const Fp8Product& product, const Fp8GemmPlan& plan);

}  // namespace minfer::cuda
