#pragma once

#include <cstdint>

#include "kernels/cuda/device/owners.h"

namespace minfer::cuda {

/// Asks the device for its time (%globaltimer) beside any other work that it runs. One thread at a time.
class DeviceTimer {
 public:
  DeviceTimer();
  /// Takes some 10 us, or longer while a running kernel leaves no room for a block. Throws DeviceError.
  int64_t now_ns();

 private:
  Stream stream_;
  PinnedBuffer time_;
};

}  // namespace minfer::cuda
