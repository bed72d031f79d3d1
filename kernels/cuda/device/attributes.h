#pragma once

#include <cuda_runtime_api.h>

namespace minfer::cuda {

/// Of the current device. Throws DeviceError.
int device_attribute(cudaDeviceAttr which);
/// Whether the current device has Hopper's tensor cores, of which the products are wgmma (sm_90a). Throws DeviceError.
bool has_wgmma();

}  // namespace minfer::cuda
