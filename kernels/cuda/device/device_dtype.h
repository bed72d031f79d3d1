#pragma once

#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// The type to which the CUDA backend converts types with one to three bits an element: the smallest type with
/// kernels that holds them exactly. It is q2_k for tq1_0 and tq2_0, and lut4 for types with a grid. Other types stay.
constexpr DType dense_dtype(DType dtype) {
  switch (dtype) {
    case DType::tq1_0:
    case DType::tq2_0:
      return DType::q2_k;
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq1_s:
    case DType::iq1_m:
      return DType::lut4;
    default:
      return dtype;
  }
}

/// The type in which the CUDA backend keeps experts. It is dense_dtype(), or, for rare types without kernels
/// for experts, the type that they are converted to: q5_0 and iq4_nl become q8_0, and q3_k, tq1_0 and tq2_0
/// become q6_k, all exactly; q4_1, q5_1, q2_k and iq4_xs are rounded to bf16.
constexpr DType expert_dtype(DType dtype) {
  switch (dtype) {
    case DType::q5_0:
    case DType::iq4_nl:
      return DType::q8_0;
    case DType::q3_k:
    case DType::tq1_0:
    case DType::tq2_0:
      return DType::q6_k;
    case DType::q4_1:
    case DType::q5_1:
    case DType::q2_k:
    case DType::iq4_xs:
      return DType::bf16;
    default:
      return dense_dtype(dtype);
  }
}

/// Quantised types with fewer kernels than the others: those for one token and for Hopper's tensor cores, and dequantisation.
constexpr bool is_rare(DType dtype) {
  return expert_dtype(dtype) != dtype || dtype == DType::lut4;
}

/// The type in which the CUDA backend keeps a tensor.
inline DType device_dtype(const HostTensor& tensor) {
  const DType dtype = tensor.loaded_dtype();
  return tensor.count > 1 ? expert_dtype(dtype) : dense_dtype(dtype);
}

/// The tensor as the CUDA backend keeps it at `data`.
inline Weight device_weight(const HostTensor& tensor, const void* data) {
  const DType dtype = device_dtype(tensor);
  Weight weight{data, dtype, tensor.count, tensor.rows, tensor.cols};
  if (dtype != tensor.dtype) weight.file_dtype = tensor.dtype;
  return weight;
}

}  // namespace minfer::cuda
