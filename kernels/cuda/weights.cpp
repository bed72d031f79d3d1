#include "kernels/cuda/weights.h"

#include "kernels/cuda/weight_layout.h"

namespace minfer::cuda {

DType device_dtype(DType dtype) {
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

size_t device_bytes(const HostTensor& tensor) {
  return static_cast<size_t>(tensor.count *
                             matrix_stride_bytes(device_dtype(tensor.dtype), tensor.rows, tensor.cols));
}

int64_t row_granularity(DType dtype) {
  return is_tiled(device_dtype(dtype)) ? kPanelRows : 1;
}

}  // namespace minfer::cuda
