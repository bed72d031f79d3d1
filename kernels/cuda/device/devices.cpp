#include "kernels/cuda/device/devices.h"

#include <cuda_runtime.h>

#include "kernels/base/error.h"

namespace minfer {
namespace {

std::string text_of(const cudaUUID_t& uuid) {
  std::string text;
  for (const char byte : uuid.bytes)
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

}  // namespace

std::vector<CudaDevice> cuda_devices() {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted == cudaErrorNoDevice || counted == cudaErrorInsufficientDriver) return {};
  if (counted != cudaSuccess) fail("cannot list CUDA devices: {}", cudaGetErrorString(counted));
  int driver_version = 0;
  cudaDriverGetVersion(&driver_version);
  std::vector<CudaDevice> devices;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp properties{};
    const cudaError_t status = cudaGetDeviceProperties(&properties, i);
    if (status != cudaSuccess)
      fail("cannot read the properties of CUDA device {}: {}", i, cudaGetErrorString(status));
    devices.push_back(
        {.name = properties.name,
         .major = properties.major,
         .minor = properties.minor,
         .multiprocessors = properties.multiProcessorCount,
         .memory_bytes = static_cast<int64_t>(properties.totalGlobalMem),
         .shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin),
         .cache_bytes = properties.l2CacheSize,
         .sm = {.multiprocessors = properties.multiProcessorCount,
                .registers = properties.regsPerMultiprocessor,
                .shared_bytes = static_cast<int32_t>(properties.sharedMemPerMultiprocessor),
                .reserved_shared_bytes = static_cast<int32_t>(properties.reservedSharedMemPerBlock),
                .threads = properties.maxThreadsPerMultiProcessor,
                .blocks = properties.maxBlocksPerMultiProcessor},
         .id = text_of(properties.uuid),
         .driver_version = driver_version});
  }
  return devices;
}

bool has_usable_gpu() {
  const std::vector<CudaDevice> devices = cuda_devices();
  return !devices.empty() && is_usable(devices.front());
}

}  // namespace minfer
