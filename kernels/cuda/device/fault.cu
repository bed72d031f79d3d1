#include <cstdint>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/fault.h"

namespace minfer::cuda {
namespace {

__global__ void write_to(int32_t* nowhere) {
  *nowhere = 1;
}

}  // namespace

void launch_fault(cudaStream_t stream) {
  write_to<<<1, 1, 0, stream>>>(reinterpret_cast<int32_t*>(uintptr_t{16}));
  check(cudaGetLastError(), "launch of the test fault");
}

}  // namespace minfer::cuda
