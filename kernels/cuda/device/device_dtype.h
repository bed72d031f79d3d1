#pragma once

#include "kernels/dtype.h"

namespace minfer::cuda {

/// The type in which the CUDA backend keeps a weight of a GGUF type: the same, or for rare types the one it
/// is converted to. q5_0 and iq4_nl are q8_0 and q3_k is q6_k exactly; q4_1, q5_1, q2_k and iq4_xs are
/// rounded to bf16.
constexpr DType device_dtype(DType dtype) {
  switch (dtype) {
    case DType::q5_0:
    case DType::iq4_nl:
      return DType::q8_0;
    case DType::q3_k:
      return DType::q6_k;
    case DType::q4_1:
    case DType::q5_1:
    case DType::q2_k:
    case DType::iq4_xs:
      return DType::bf16;
    default:
      return dtype;
  }
}

}  // namespace minfer::cuda
