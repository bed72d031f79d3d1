#include "kernels/cuda/device/owners.h"

#include <cstring>

#include "kernels/base/error.h"
#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/memory_ledger.h"

namespace minfer::cuda {

void FreeDevice::operator()(void* data) const noexcept {
  MemoryLedger::of_process().give_back(data);
  cudaFree(data);
}

void FreePinned::operator()(void* data) const noexcept {
  MemoryLedger::of_process().give_back(data);
  cudaFreeHost(data);
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return Event(event);
}

Event make_timing_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "making an event");
  return Event(event);
}

CublasLt make_cublas_lt() {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail<DeviceError>("CUDA: making a cuBLASLt handle: {}", cublasLtGetStatusName(status));
  }
  return CublasLt(handle);
}

DeviceBuffer::DeviceBuffer(size_t bytes, std::string_view what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not sticky: clear it
    const auto [free_bytes, total_bytes] = free_and_total_bytes();
    fail<DeviceError>("{}: {} bytes of device memory wanted, {} of {} free", what, bytes, free_bytes,
                      total_bytes);
  }
  check(status, what);
  data_.reset(data);
  MemoryLedger::of_process().take(data, bytes, what, true);
}

DeviceBuffer DeviceBuffer::zeros(size_t bytes, std::string_view what) {
  DeviceBuffer buffer(bytes, what);
  if (bytes == 0) return buffer;
  check(cudaMemset(buffer.data(), 0, bytes), what);
  check(cudaStreamSynchronize(nullptr), what);
  return buffer;
}

PinnedBuffer::PinnedBuffer(size_t bytes, std::string_view what) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaHostAlloc(&data, bytes, cudaHostAllocPortable), what);
  data_.reset(data);
  MemoryLedger::of_process().take(data, bytes, what, false);
  std::memset(data, 0, bytes);
}

}  // namespace minfer::cuda
