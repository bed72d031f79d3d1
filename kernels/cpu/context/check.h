#pragma once

#include <string_view>

#include "kernels/base/error.h"
#include "kernels/op_args.h"

namespace minfer::cpu {

/// Throws Error unless `x` is [rows, cols] f32 with rows that do not overlap.
inline void check_f32(std::string_view what, const Tensor& x, int64_t rows, int64_t cols) {
  if (x.dtype != DType::f32) fail("{}: type {}, expected f32", what, name(x.dtype));
  if (x.rows != rows || x.cols != cols) {
    fail("{}: shape [{}, {}], expected [{}, {}]", what, x.rows, x.cols, rows, cols);
  }
  if (x.stride < cols) fail("{}: stride {} below {} columns", what, x.stride, cols);
}

/// Throws Error unless `weight` is one f32 row of `cols` elements.
inline void check_vector(std::string_view what, const Weight& weight, int64_t cols, int64_t rows = 1) {
  if (weight.dtype != DType::f32 || weight.count != 1 || weight.rows != rows || weight.cols != cols) {
    fail("{}: {} x [{}, {}] {}, expected [{}, {}] f32", what, weight.count, weight.rows, weight.cols,
         name(weight.dtype), rows, cols);
  }
}

/// Throws Error if a product is to normalise x first: the CPU's products take x as it is (Target::takes_norm()).
inline void check_no_norm(std::string_view what, const FrontNorm& norm) {
  if (norm.weight) fail("{}: a norm in front, expected none on the CPU", what);
}

}  // namespace minfer::cpu
