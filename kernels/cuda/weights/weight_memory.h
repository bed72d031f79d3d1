#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "kernels/base/thread_pool.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/tensor_view.h"

namespace minfer::cuda {

/// The memory of all weights, one allocation, and the way into it. Several threads copy host bytes to
/// page-locked memory; from there they are copied to the device, and a kernel puts them into their device
/// layout. Copies and kernels of one chunk overlap with the host's work on the next. Tensors lie in the order
/// in which they are loaded, without gaps: q, k and v of a layer are one matrix if they have one type.
class WeightMemory {
 public:
  /// Makes room for `tensors`. Throws DeviceError if the device lacks the memory.
  void reserve(std::span<const HostTensor> tensors);
  /// Copies and converts on `stream`. On return the host's bytes are no longer needed.
  Weight load(cudaStream_t stream, const HostTensor& tensor);
  /// Waits for the copies and frees the staging memory and its threads.
  void end_loading(cudaStream_t stream);

 private:
  struct Staging {
    PinnedBuffer host;
    DeviceBuffer device;
    Event is_free;
  };

  void load_matrix(cudaStream_t stream, const HostTensor& tensor, int64_t matrix, void* data);
  Staging& next_staging();

  DeviceBuffer memory_;
  size_t used_bytes_ = 0;
  std::array<Staging, 2> staging_;
  std::unique_ptr<ThreadPool> copiers_;  ///< while weights are loaded
  size_t num_chunks_ = 0;
};

}  // namespace minfer::cuda
