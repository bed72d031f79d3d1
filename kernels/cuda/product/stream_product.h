#pragma once

#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/fp8/fp8_stream_kernels.h"
#include "kernels/cuda/product/operands/product_args.h"

namespace minfer::cuda {

/// bf16 weights, as they lie in a file, times activations. Takes what ProductKernel::stream takes; see stream_product.cuh.
void stream_product(Launch& launch, const ProductArgs& args);

/// Quantised weights times activations. Takes what ProductKernel::tile_stream takes; see tile_stream.cuh.
void tile_stream_product(Launch& launch, DType type, const ProductArgs& args);

/// FP8 weights times FP8 activations. For the tokens of each launch it chooses ProductKernel::fp8_gemm or
/// fp8_stream; see fp8_gemm.cuh and fp8_stream.cuh.
void fp8_product(Launch& launch, const Fp8Product& product);

}  // namespace minfer::cuda
