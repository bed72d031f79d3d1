#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

/// Move-only owners of CUDA's objects. Making one throws DeviceError. Destructors never throw: the next use of
/// a device that has failed reports it.
namespace minfer::cuda {

struct Destroy {
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
  void operator()(cudaEvent_t event) const noexcept { cudaEventDestroy(event); }
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t graph) const noexcept { cudaGraphExecDestroy(graph); }
  void operator()(cublasLtHandle_t handle) const noexcept { cublasLtDestroy(handle); }
};
struct FreeDevice {
  void operator()(void* data) const noexcept;
};
struct FreePinned {
  void operator()(void* data) const noexcept;
};

template <class Handle>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy>;
using Stream = Owner<cudaStream_t>;
using Event = Owner<cudaEvent_t>;
using Graph = Owner<cudaGraph_t>;
using GraphExec = Owner<cudaGraphExec_t>;
using CublasLt = Owner<cublasLtHandle_t>;

/// A stream that does not wait for the default stream.
Stream make_stream();
/// An event without timing: for waiting.
Event make_event();
/// An event with timing: it records when it was reached.
Event make_timing_event();
CublasLt make_cublas_lt();

/// Device memory, 256-byte aligned, uninitialised; `what` is its part in the MemoryLedger. If there is not
/// enough memory, throws DeviceError with `what`, the bytes asked for and the bytes free.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(size_t bytes, std::string_view what);
  /// Zeroed on return: streams of make_stream() do not wait for the default stream, the only one that cudaMemset() runs on.
  static DeviceBuffer zeros(size_t bytes, std::string_view what);
  void* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }
  void* release() { return data_.release(); }

 private:
  std::unique_ptr<void, FreeDevice> data_;
  size_t bytes_ = 0;
};

/// Page-locked host memory, zeroed. The device can read and write it through the same pointer.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(size_t bytes, std::string_view what);
  void* data() const { return data_.get(); }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_.get());
  }
  size_t bytes() const { return bytes_; }
  void* release() { return data_.release(); }

 private:
  std::unique_ptr<void, FreePinned> data_;
  size_t bytes_ = 0;
};

}  // namespace minfer::cuda
