#include "kernels/cuda/weights/weights.h"

#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {

size_t device_bytes(const HostTensor& tensor) {
  return static_cast<size_t>(tensor.count *
                             matrix_stride_bytes(device_dtype(tensor.dtype), tensor.rows, tensor.cols));
}

int64_t row_granularity(DType dtype) {
  return is_tiled(device_dtype(dtype)) ? kPanelRows : 1;
}

}  // namespace minfer::cuda
