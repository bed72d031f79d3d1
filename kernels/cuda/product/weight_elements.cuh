#pragma once

#include <type_traits>

#include "kernels/cuda/device/element.cuh"
#include "kernels/cuda/product/quant_tile.cuh"

/// Any element of a matrix in any device layout: for kernels that want rows rather than products.
namespace minfer::cuda {

/// Elements col ... col + 3 of a row. Columns beyond the matrix: zeros in tiles; plain rows must have them
/// all, and `col` a multiple of 4.
template <DType type>
__device__ inline float4 weight_values(const void* matrix, int64_t cols, int64_t row, int64_t col) {
  if constexpr (is_tiled(type)) {
    const int64_t tile = row / kPanelRows * tiles_of(cols) + col / kTileCols;
    return tile_values<type>(static_cast<const uint8_t*>(matrix) + tile * tile_bytes(type),
                             static_cast<int>(row % kPanelRows), static_cast<int>(col % kTileCols));
  } else {
    using Element = std::conditional_t<type == DType::f32, float,
                                       std::conditional_t<type == DType::f16, __half, __nv_bfloat16>>;
    const auto* at = static_cast<const Element*>(matrix) + row * cols + col;
    const auto value = [&](int i) { return col + i < cols ? to_f32(at[i]) : 0.0f; };
    return {value(0), value(1), value(2), value(3)};
  }
}

/// Calls `f` with std::integral_constant<DType, type> for the device type `type`; false if it is none.
template <class F>
bool for_device_type(DType type, F&& f) {
  switch (type) {
    case DType::f32:
      return f(std::integral_constant<DType, DType::f32>{}), true;
    case DType::f16:
      return f(std::integral_constant<DType, DType::f16>{}), true;
    case DType::bf16:
      return f(std::integral_constant<DType, DType::bf16>{}), true;
    case DType::q4_0:
      return f(std::integral_constant<DType, DType::q4_0>{}), true;
    case DType::q8_0:
      return f(std::integral_constant<DType, DType::q8_0>{}), true;
    case DType::q4_k:
      return f(std::integral_constant<DType, DType::q4_k>{}), true;
    case DType::q5_k:
      return f(std::integral_constant<DType, DType::q5_k>{}), true;
    case DType::q6_k:
      return f(std::integral_constant<DType, DType::q6_k>{}), true;
    default:
      return false;
  }
}

}  // namespace minfer::cuda
