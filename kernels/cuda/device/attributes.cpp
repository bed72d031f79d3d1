#include "kernels/cuda/device/attributes.h"

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/device/strip_shared.h"

namespace minfer::cuda {

int device_attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "asking for the device");
  check(cudaDeviceGetAttribute(&value, which, device), "asking for an attribute of the device");
  return value;
}

bool has_wgmma() {
#ifdef MINFER_SM90A
  return has_hopper_tensor_cores(device_attribute(cudaDevAttrComputeCapabilityMajor),
                                 device_attribute(cudaDevAttrComputeCapabilityMinor));
#else
  return false;
#endif
}

DeviceFacts device_facts(int32_t sms) {
  return {.sms = sms,
          .has_wgmma = has_wgmma(),
          .shared_bytes = static_cast<int64_t>(most_shared_bytes()),
          .strip_shared_bytes = kStripSharedBytes};
}

size_t most_shared_bytes() {
  thread_local const auto bytes =
      static_cast<size_t>(device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin));
  return bytes;
}

bool launches_start_early() {
  thread_local const bool start_early = has_early_starts(device_attribute(cudaDevAttrComputeCapabilityMajor));
  return start_early;
}

}  // namespace minfer::cuda
