#include "kernels/backend.h"
#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/product/matmul_search.h"
#include "kernels/cuda/profiler/peak.h"

// Replaces kernels/cuda in a build without CUDA: there is no device.
namespace minfer {

std::vector<CudaDevice> cuda_devices() {
  return {};
}

bool has_usable_gpu() {
  return false;
}

GpuPeak measure_gpu_peak(DType /*type*/, bool /*fp8*/) {
  fail<DeviceError>("this build has no CUDA code");
}

double cuda::fastest_matmul_us(std::span<const cuda::Product> /*products*/) {
  fail<DeviceError>("this build has no CUDA code");
}

std::shared_ptr<CudaRanks> make_cuda_ranks(const CudaRanksOptions& /*options*/) {
  fail("tensor-parallel-size: this build has no CUDA code");
}

void end_in_order(CudaRanks& /*ranks*/) {}

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& /*options*/) {
  fail(
      "device cuda: this build has no CUDA code: build it on a machine with nvcc and a GPU, or with "
      "-DMINFER_CUDA=ON");
}

std::unique_ptr<CounterSampler> make_cuda_counters(const CudaRanks& /*ranks*/, Rank /*rank*/) {
  return nullptr;
}

}  // namespace minfer
