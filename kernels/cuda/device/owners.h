#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

/// Move-only owners of CUDA's objects. Making one throws DeviceError; destructors never throw (a device that
/// has failed reports that where it is used).
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
/// An event that tells the time.
Event make_timing_event();
CublasLt make_cublas_lt();

/// Device memory, 256-byte aligned, uninitialised; `what` is its part in the MemoryLedger. Throws DeviceError naming `what`, the bytes asked for and
/// the bytes free when there is not enough.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(size_t bytes, std::string_view what);
  /// Zeroed when this returns: streams of make_stream() do not wait for the default stream, which cudaMemset() alone runs on.
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

/// Page-locked host memory, which the device can read and write through the same pointer. Zeroed.
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

 private:
  std::unique_ptr<void, FreePinned> data_;
  size_t bytes_ = 0;
};

}  // namespace minfer::cuda
