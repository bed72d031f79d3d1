#pragma once

#include <string_view>

#include "kernels/base/error.h"
#include "kernels/tensor_view.h"

namespace minfer {

/// Throws Error unless `bias` is null or `rows` rows of `cols` elements, f32.
inline void check_bias(std::string_view what, const Weight& bias, int64_t rows, int64_t cols) {
  if (!bias) return;
  if (bias.dtype != DType::f32 || bias.count != 1 || bias.rows != rows || bias.cols != cols) {
    fail("{}: {} x [{}, {}] {}, expected [{}, {}] f32", what, bias.count, bias.rows, bias.cols,
         name(bias.dtype), rows, cols);
  }
}

/// Element `col` of row `row` of a bias; null where there is none.
inline const float* bias_at(const Weight& bias, int64_t row, int64_t col) {
  return bias ? static_cast<const float*>(bias.data) + row * bias.cols + col : nullptr;
}

}  // namespace minfer
