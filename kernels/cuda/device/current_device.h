#pragma once

#include <cuda_runtime_api.h>

namespace minfer::cuda {

/// Makes a device the calling thread's current one during its life, then restores the previous one.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) noexcept
      : has_before_(cudaGetDevice(&before_) == cudaSuccess), error_(cudaSetDevice(device)) {}
  ~CurrentDevice() {
    if (has_before_) cudaSetDevice(before_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

  /// The result of selecting the device.
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  bool has_before_;
  cudaError_t error_;
};

}  // namespace minfer::cuda
