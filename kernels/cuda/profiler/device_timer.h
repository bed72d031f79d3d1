#pragma once

#include <cstdint>

#include "kernels/cuda/device/owners.h"

namespace minfer::cuda {

/// Asks the device for its time (%globaltimer) beside whatever else it runs. One thread at a time.
class DeviceTimer {
 public:
  DeviceTimer();
  /// Some 10 us, up to what a running kernel leaves no room for a block. Throws DeviceError.
  int64_t now_ns();

 private:
  Stream stream_;
  PinnedBuffer time_;
};

}  // namespace minfer::cuda
