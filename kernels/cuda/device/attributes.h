#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/device_facts.h"

namespace minfer::cuda {

/// Of the current device. Throws DeviceError.
int device_attribute(cudaDeviceAttr which);
/// Whether the current device has Hopper's tensor cores, of which the products are wgmma, and the build has code for them (sm_90a).
/// Throws DeviceError.
bool has_wgmma();
/// The current device, with `sms` multiprocessors, but for what is of modelled times alone. Throws DeviceError.
DeviceFacts device_facts(int32_t sms);
/// The shared memory that a block may have, asked once a thread. Throws DeviceError.
size_t most_shared_bytes();
/// Whether the device has_early_starts(), asked once a thread: a thread uses one device. Throws DeviceError.
bool launches_start_early();

}  // namespace minfer::cuda
