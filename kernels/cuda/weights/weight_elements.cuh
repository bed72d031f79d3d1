#pragma once

#include <type_traits>

#include "kernels/cuda/ptx/element.cuh"
#include "kernels/cuda/weights/quant_tile.cuh"
#include "kernels/cuda/weights/weight_types.h"

/// Any element of a matrix in any device layout, for kernels that take rows rather than products.
namespace minfer::cuda {

/// Elements col ... col + 3 of a row. Columns beyond the matrix are zeros in tiles; plain rows must have all
/// four, with `col` a multiple of 4.
template <DType type>
__device__ inline float4 weight_values(const void* matrix, int64_t cols, int64_t row, int64_t col) {
  if constexpr (is_tiled(type)) {
    const int64_t tile = row / kStripRows * tiles_of(cols) + col / kTileCols;
    return tile_values<type>(static_cast<const uint8_t*>(matrix) + tile * tile_bytes(type),
                             static_cast<int>(row % kStripRows), static_cast<int>(col % kTileCols));
  } else {
    using Element = std::conditional_t<type == DType::f32, float,
                                       std::conditional_t<type == DType::f16, __half, __nv_bfloat16>>;
    const auto* at = static_cast<const Element*>(matrix) + row * cols + col;
    if (cols % 4 == 0) {  // one load
      struct alignas(4 * sizeof(Element)) Four {
        Element values[4];
      };
      const Four four = *reinterpret_cast<const Four*>(at);
      return {to_f32(four.values[0]), to_f32(four.values[1]), to_f32(four.values[2]), to_f32(four.values[3])};
    }
    const auto value = [&](int i) { return col + i < cols ? to_f32(at[i]) : 0.0f; };
    return {value(0), value(1), value(2), value(3)};
  }
}

}  // namespace minfer::cuda
