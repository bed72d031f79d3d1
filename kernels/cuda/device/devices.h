#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/device/block_shared.h"
#include "kernels/occupancy.h"

namespace minfer {

/// A CUDA device of this machine.
struct CudaDevice {
  std::string name;   ///< e.g. "NVIDIA H200"
  int32_t major = 0;  ///< compute capability, e.g. 9.0
  int32_t minor = 0;
  int32_t multiprocessors = 0;
  int64_t memory_bytes = 0;
  int64_t shared_bytes = 0;    ///< shared memory that a thread block may have
  int64_t cache_bytes = 0;     ///< of the L2
  SmLimits sm = {};            ///< the limits of a multiprocessor
  std::string id = {};         ///< the device's own UUID, independent of the number that a process gives it
  int32_t driver_version = 0;  ///< the latest CUDA version that the driver knows, e.g. 13000
};

/// The devices that the driver lists; none without a driver. Throws Error with CUDA's reason when the driver
/// answers with anything but a list.
std::vector<CudaDevice> cuda_devices();

/// True if the CUDA backend runs on it: it needs compute capability 8.0 or later, and the shared memory of a
/// block that the build's kernels need.
inline bool is_usable_with(const CudaDevice& device, int64_t needed_shared_bytes) {
  return device.major >= 8 && device.shared_bytes >= needed_shared_bytes;
}
inline bool is_usable(const CudaDevice& device) {
  return is_usable_with(device, kNeededSharedBytes);
}
/// True if it has Hopper's tensor cores, which compute products by wgmma. No GPU before or after has them.
constexpr bool has_hopper_tensor_cores(int32_t major, int32_t minor) {
  return major == 9 && minor == 0;
}
/// True if kernels may begin before those in front of them have ended (PDL), and blocks may form clusters.
constexpr bool has_early_starts(int32_t major) {
  return major >= 9;
}

/// True if its tensor cores multiply e4m3 numbers directly.
inline bool has_fp8_tensor_cores(const CudaDevice& device) {
  return device.major > 8 || (device.major == 8 && device.minor >= 9);
}

/// True if there is a device that the CUDA backend would use: the first device, if it is usable.
bool has_usable_gpu();

}  // namespace minfer
