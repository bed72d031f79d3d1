#pragma once

#include <span>
#include <vector>

#include "kernels/backend.h"

namespace minfer::test {

/// Copies of host values in a backend's memory.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  DeviceArray(Backend& backend, std::span<const T> values)
      : backend_(&backend),
        size_(values.size()),
        buffer_(backend.allocate(values.size_bytes(), "test data")) {
    backend.copy_to_device(buffer_.data(), values.data(), values.size_bytes());
  }
  T* data() const { return static_cast<T*>(buffer_.data()); }
  std::vector<T> values() const {
    std::vector<T> result(size_);
    backend_->synchronize();
    backend_->copy_to_host(result.data(), buffer_.data(), size_ * sizeof(T));
    return result;
  }

 private:
  Backend* backend_ = nullptr;
  size_t size_ = 0;
  Buffer buffer_;
};

/// A tensor inside a larger piece of memory: rows are `kGap` elements further apart than they are long, and
/// every element around the rows holds a canary. Outputs start as NaN, so that one never written is seen.
class GuardedTensor {
 public:
  /// Filled with `values` [rows, cols], or with NaN if that is empty.
  GuardedTensor(Backend& backend, int64_t rows, int64_t cols, std::span<const float> values = {});
  const Tensor& tensor() const { return tensor_; }
  /// [rows, cols] without the gaps.
  std::vector<float> values() const;
  /// True if all canaries are unchanged.
  bool intact() const;

 private:
  static constexpr int64_t kGap = 5;
  static constexpr float kCanary = 12345.0f;

  Tensor tensor_;
  DeviceArray<float> memory_;
};

/// A step whose forward pass gives `logits`.
void sample(Backend& backend, const Tensor& logits, std::span<const SamplingRow> rows,
            std::span<SampledToken> out);

/// A weight of one f32 row; `values` must outlive it.
Weight load_vector(Backend& backend, std::span<const float> values);

}  // namespace minfer::test
