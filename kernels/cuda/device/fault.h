#pragma once

#include <cuda_runtime_api.h>

namespace minfer::cuda {

/// A kernel that writes where nothing is mapped. For tests of how a sticky error ends the program.
void launch_fault(cudaStream_t stream);

}  // namespace minfer::cuda
