#include "kernels/cuda/devices.h"

// In a build without CUDA there are none.
namespace minfer {

std::vector<CudaDevice> cuda_devices() {
  return {};
}

}  // namespace minfer
