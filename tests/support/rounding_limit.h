#pragma once

#include "kernels/dtype.h"

namespace minfer::test {

/// NMSE of values that are computed in f32 and stored in a type.
inline double rounding_limit(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return 1e-12;
    case DType::f16:
      return 1e-7;
    case DType::bf16:
      return 5e-6;
    default:
      return 1e-3;
  }
}

}  // namespace minfer::test
