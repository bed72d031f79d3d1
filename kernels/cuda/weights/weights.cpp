#include "kernels/cuda/weights/weights.h"

#include "kernels/cuda/weights/weight_layout.h"

namespace minfer::cuda {

int64_t row_granularity(const HostTensor& tensor) {
  return is_tiled(device_dtype(tensor)) ? kStripRows : 1;
}

}  // namespace minfer::cuda
