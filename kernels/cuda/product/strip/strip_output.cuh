#pragma once

#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/ptx/activation.cuh"
#include "kernels/cuda/ptx/element.cuh"

namespace minfer::cuda {

__device__ __forceinline__ float biased(const float* bias, int row, float sum) {
  return bias == nullptr ? sum : sum + bias[row];
}
/// An element of a product from its sum.
__device__ __forceinline__ float output_of(const ProductArgs& args, int row, float sum) {
  return biased(args.bias, row, sum);
}
/// An element of gate and up from their sums.
__device__ __forceinline__ float output_of(const ProductArgs& args, int row, float gate, float up) {
  return Gate<false>(args.activation)(biased(args.bias, row, gate), biased(args.up_bias, row, up));
}

/// Stores an element of a product: as f32, which may be added to the residual, or rounded to bf16.
__device__ __forceinline__ void store_output(const ProductArgs& args, int token, int row, float value) {
  const int64_t at = token * args.out_stride + row;
  if (args.out_is_f32) {
    auto* out = static_cast<float*>(args.out) + at;
    *out = args.add_to_out ? *out + value : value;
  } else {
    static_cast<__nv_bfloat16*>(args.out)[at] = from_f32<__nv_bfloat16>(value);
  }
}

}  // namespace minfer::cuda
