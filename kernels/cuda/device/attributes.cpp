#include "kernels/cuda/device/attributes.h"

#include "kernels/cuda/device/check.h"

namespace minfer::cuda {

int device_attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&value, which, device), "asking for an attribute of the device");
  return value;
}

bool has_wgmma() {
  return device_attribute(cudaDevAttrComputeCapabilityMajor) == 9 &&
         device_attribute(cudaDevAttrComputeCapabilityMinor) == 0;
}

}  // namespace minfer::cuda
