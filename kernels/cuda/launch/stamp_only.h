#pragma once

#include "kernels/cuda/launch/launch.h"

namespace minfer::cuda {

/// A kernel that stores the op's stamps and nothing else: in front of or behind kernels of libraries, which carry none.
void stamp_only(Launch& launch);

/// Whether the build has code that runs on the current device: asked of that kernel, which is compiled as all are. Throws DeviceError
/// for anything else that is wrong with it.
bool has_code_for_device();

}  // namespace minfer::cuda
