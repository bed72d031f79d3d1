#pragma once

#include "kernels/tensor_view.h"

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

/// The type in which it keeps a tensor.
inline DType device_dtype(const HostTensor& tensor) {
  return device_dtype(tensor.loaded_dtype());
}

/// The tensor as the CUDA backend keeps it at `data`.
inline Weight device_weight(const HostTensor& tensor, const void* data) {
  const DType dtype = device_dtype(tensor);
  Weight weight{data, dtype, tensor.count, tensor.rows, tensor.cols};
  if (dtype != tensor.dtype) weight.file_dtype = tensor.dtype;
  return weight;
}

}  // namespace minfer::cuda
