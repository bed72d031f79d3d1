#pragma once

#include <cstdint>

#include "kernels/tensor_view.h"

/// Activations in 8 bits (e4m3), as products on Hopper's FP8 tensor cores take them. Each 128 columns of a
/// token have one scale, which makes the largest of them 448. A tensor of type fp8 has rows without gaps: codes
/// [rows][cols], and behind them scales [cols / 128][rows, rounded up to eight] bf16. In each 16 columns, code
/// 4 t + i is the code of column 2 t + 8 (i % 2) + i / 2, the order of a tile of fp8 weights (quant_tile.cuh).
namespace minfer::cuda {

inline constexpr int kFp8Columns = 128;  ///< columns with one scale

struct Fp8Activations {
  uint8_t* codes = nullptr;
  uint16_t* scales = nullptr;  ///< bf16
  int32_t cols = 0;
  int32_t scale_stride = 0;  ///< distance from the scales of a group of columns to those of the next group

  /// The activations from `token` on, which is a multiple of eight.
  Fp8Activations from(int64_t token) const {
    if (codes == nullptr) return {};
    return {codes + token * cols, scales + token, cols, scale_stride};
  }
};

/// Null for a tensor of another type. Columns are a multiple of 128. Memory of two bytes an element, as for bf16, is enough.
inline Fp8Activations fp8_activations(const Tensor& tensor) {
  if (tensor.dtype != DType::fp8) return {};
  auto* codes = static_cast<uint8_t*>(tensor.data);
  return {.codes = codes,
          .scales = reinterpret_cast<uint16_t*>(codes + tensor.rows * tensor.cols),
          .cols = static_cast<int32_t>(tensor.cols),
          .scale_stride = static_cast<int32_t>((tensor.rows + 7) / 8 * 8)};
}

}  // namespace minfer::cuda
