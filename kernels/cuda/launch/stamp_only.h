#pragma once

#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

/// A kernel that only stores the op's stamps, in front of or behind kernels of libraries, which carry none.
void stamp_only(Launch& launch);

/// True if the build has code that runs on the current device. It asks about stamp_only()'s kernel, which is
/// compiled like all others. Throws DeviceError for any other error of that kernel.
bool has_code_for_device();

}  // namespace minfer::cuda
