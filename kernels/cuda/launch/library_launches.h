#pragma once

#include <functional>
#include <vector>

#include <cuda_runtime_api.h>

#include "kernels/launches.h"

namespace minfer::cuda {

/// The kernels that a library launches, found by capturing what `enqueue` puts on the stream it is given; none
/// of them runs. Name, sizes, resources and blocks_per_sm are set, the rest of the occupancy is not. Empty if
/// the driver does not tell. It may be called while another stream is being captured.
std::vector<KernelLaunch> library_launches(const char* path,
                                           const std::function<void(cudaStream_t)>& enqueue);

}  // namespace minfer::cuda
