#pragma once

#include "kernels/cuda/device/launch.h"

namespace minfer::cuda {

/// A kernel that stores the op's stamps and nothing else: in front of or behind kernels of libraries, which carry none.
void stamp_only(Launch& launch);

}  // namespace minfer::cuda
