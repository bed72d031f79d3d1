#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include "kernels/cuda/device/device_facts.h"

namespace minfer::cuda {

/// An attribute of the current device. Throws DeviceError.
int device_attribute(cudaDeviceAttr which);
/// True if the current device has Hopper's tensor cores, which compute products by wgmma, and the build has
/// code for them (sm_90a). Throws DeviceError.
bool has_wgmma();
/// The facts of the current device, with `sms` multiprocessors; the rates for modelled times stay 0. Throws DeviceError.
DeviceFacts device_facts(int32_t sms);
/// The most shared memory of a block, in bytes, asked once per thread. Throws DeviceError.
size_t most_shared_bytes();
/// True if the device has_early_starts(), asked once per thread: a thread uses one device. Throws DeviceError.
bool launches_start_early();

}  // namespace minfer::cuda
