#include "kernels/cuda/device/check.h"

#include "kernels/base/error.h"

namespace minfer::cuda {

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  fail<DeviceError>("CUDA: {}: {} ({})", what, cudaGetErrorString(status), cudaGetErrorName(status));
}

void unsupported(std::string_view op, std::string_view expected, std::string_view found) {
  fail("{} on CUDA: expected {}, found {}", op, expected, found);
}

void require_equal(std::string_view what, int64_t expected, int64_t found) {
  if (found != expected) fail("{}: expected {}, found {}", what, expected, found);
}

}  // namespace minfer::cuda
