#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/capture.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/tensor_view.h"

namespace minfer::test {

/// A value rounded to an element type: f32, f16, bf16 or fp8 (saturating).
float rounded(float value, DType dtype);
std::vector<float> rounded(std::span<const float> values, DType dtype);
/// Converts elements of a type to bytes, and back.
std::vector<uint8_t> encode(std::span<const float> values, DType dtype);
std::vector<float> decode(std::span<const uint8_t> bytes, DType dtype);

/// A copy of host values in device memory.
template <class T>
class CudaArray {
 public:
  explicit CudaArray(std::span<const T> values)
      : size_(values.size()), buffer_(values.size_bytes(), "test data") {
    assign(values);
  }
  T* data() const { return buffer_.as<T>(); }
  /// Assigns the same number of values as before.
  void assign(std::span<const T> values) {
    cuda::require_equal("test data: values", static_cast<int64_t>(size_), std::ssize(values));
    cuda::check(cudaMemcpy(data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "upload");
    // The copy may return before the last bytes arrive, and the tests' streams do not wait for it.
    cuda::check(cudaDeviceSynchronize(), "upload");
  }
  std::vector<T> values() const {
    std::vector<T> result(size_);
    cuda::check(cudaDeviceSynchronize(), "waiting for a test's kernels");
    cuda::check(cudaMemcpy(result.data(), data(), size_ * sizeof(T), cudaMemcpyDeviceToHost), "download");
    return result;
  }

 private:
  size_t size_;
  cuda::DeviceBuffer buffer_;
};

/// A tensor of f32 or bf16 inside a larger piece of memory: every element around its rows holds a canary.
class CudaTensor {
 public:
  /// Filled with `values` [rows, cols]; with NaN if `values` is empty.
  CudaTensor(DType dtype, int64_t rows, int64_t cols, std::span<const float> values = {});
  const Tensor& tensor() const { return tensor_; }
  /// The elements [rows, cols] without the gaps.
  std::vector<float> values() const;
  /// True if all canaries are unchanged.
  bool intact() const;

 private:
  static constexpr int64_t kGap = 8;  ///< elements before the first row and after each
  static constexpr float kCanary = 12352.0f;

  CudaArray<uint8_t> memory_;
  Tensor tensor_;
};

/// A stream with the work on it: run eagerly, or captured once and replayed.
class CudaRun {
 public:
  CudaRun();
  int32_t num_sms() const { return num_sms_; }
  cuda::Launch launch() const { return {stream_.get(), num_sms_}; }
  cudaStream_t stream() const { return stream_.get(); }
  void wait() const { cuda::check(cudaStreamSynchronize(stream_.get()), "waiting for a test's stream"); }
  /// Captures the launches of `work` as a graph.
  template <class Work>
  cuda::GraphExec capture(Work&& work) const {
    return cuda::replayable(stream_.get(), "capture", work);
  }
  void replay(const cuda::GraphExec& graph) const {
    cuda::check(cudaGraphLaunch(graph.get(), stream_.get()), "graph launch");
  }

 private:
  cuda::Stream stream_;
  int32_t num_sms_ = 0;
};

}  // namespace minfer::test
