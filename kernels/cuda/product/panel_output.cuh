#pragma once

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/product/panel_product.h"

namespace minfer::cuda {

/// Bias, residual and the rounding of an element of a product.
__device__ __forceinline__ void store_output(const PanelArgs& args, int token, int row, float value) {
  if (args.bias != nullptr) value += args.bias[row];
  const int64_t at = token * args.out_stride + row;
  if (args.out_is_f32) {
    auto* out = static_cast<float*>(args.out) + at;
    *out = args.add_to_out ? *out + value : value;
  } else {
    static_cast<__nv_bfloat16*>(args.out)[at] = from_f32<__nv_bfloat16>(value);
  }
}

}  // namespace minfer::cuda
