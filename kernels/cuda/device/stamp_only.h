#pragma once

#include "kernels/cuda/device/launch.h"

namespace minfer::cuda {

/// A kernel that stores the op's stamp and nothing else: in front of kernels of libraries, which carry none.
void stamp_only(Launch& launch);

}  // namespace minfer::cuda
