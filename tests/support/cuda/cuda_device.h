#pragma once

#include "kernels/cuda/device/devices.h"

namespace minfer::test {

/// Tests of CUDA code skip if there is none.
inline bool has_cuda_device() {
  return !cuda_devices().empty();
}

}  // namespace minfer::test
