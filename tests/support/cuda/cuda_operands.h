#pragma once

#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/weights/weights.h"
#include "kernels/half.h"
#include "tests/reference/quantise.h"
#include "tests/support/random_data.h"

/// Operands of products in device memory.
namespace minfer::test {

/// Encodes host values as elements of a type.
inline std::vector<uint8_t> encode(std::span<const float> values, DType dtype) {
  std::vector<uint8_t> bytes(values.size() * traits(dtype).block_bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint16_t half = f32_to_bf16(values[i]);
    dtype == DType::f32 ? std::memcpy(bytes.data() + 4 * i, &values[i], 4)
                        : std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  return bytes;
}

/// Activations [rows, cols] in device memory, each row followed by 8 elements of canary.
class DeviceTensor {
 public:
  /// Filled with NaN if `values` is empty.
  DeviceTensor(DType dtype, int64_t rows, int64_t cols, std::span<const float> values = {})
      : stride_((cols + 15) / 8 * 8),
        memory_(static_cast<size_t>(rows * stride_) * element(dtype), "test data") {
    std::vector<float> filled(static_cast<size_t>(rows * stride_), kCanary);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        filled[r * stride_ + c] = values.empty() ? NAN : values[r * cols + c];
    }
    const std::vector<uint8_t> bytes = encode(filled, dtype);
    cuda::check(cudaMemcpy(memory_.data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "copy");
    tensor_ = {memory_.data(), dtype, rows, cols, stride_};
  }
  const Tensor& tensor() const { return tensor_; }
  /// The elements [rows, cols]. Checks the canaries.
  std::vector<float> values() const {
    std::vector<uint8_t> bytes(memory_.bytes());
    cuda::check(cudaDeviceSynchronize(), "test");
    cuda::check(cudaMemcpy(bytes.data(), memory_.data(), bytes.size(), cudaMemcpyDeviceToHost), "copy");
    std::vector<float> result;
    for (int64_t r = 0; r < tensor_.rows; ++r) {
      for (int64_t c = 0; c < stride_; ++c) {
        const float value = at(bytes, r * stride_ + c);
        if (c < tensor_.cols) {
          result.push_back(value);
        } else {
          EXPECT_EQ(value, kCanary) << "row " << r << " column " << c;
        }
      }
    }
    return result;
  }

 private:
  static constexpr float kCanary = 123.0f;
  static size_t element(DType dtype) { return traits(dtype).block_bytes; }
  float at(const std::vector<uint8_t>& bytes, int64_t i) const {
    if (tensor_.dtype == DType::bf16) {
      uint16_t half;
      std::memcpy(&half, bytes.data() + 2 * i, 2);
      return bf16_to_f32(half);
    }
    float value;
    std::memcpy(&value, bytes.data() + 4 * i, 4);
    return value;
  }

  int64_t stride_;
  cuda::DeviceBuffer memory_;
  Tensor tensor_;
};

/// A weight in its device layout, with its exact values. fp8 is quantised from random bf16.
class DeviceWeight {
 public:
  DeviceWeight(DType dtype, int64_t rows, int64_t cols, uint64_t seed, int64_t count = 1)
      : bytes_(random_weights(file_dtype(dtype), rows * count, cols, seed)),
        host_{random_tensor(dtype, bytes_, count, rows, cols)},
        memory_(cuda::device_bytes(host_), "weight") {
    cuda::check(cudaMemset(memory_.data(), 0xff, memory_.bytes()), "poison");
    const cuda::DeviceBuffer raw(bytes_.size(), "raw");
    cuda::check(cudaMemcpy(raw.data(), bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice), "copy");
    const int64_t granularity = cuda::row_granularity(host_);
    const int64_t split =
        rows / 2 / granularity * granularity;  // as a loader with a small staging buffer would
    const auto* second = raw.as<uint8_t>() + split * static_cast<int64_t>(row_bytes(host_.dtype, cols));
    if (split > 0) cuda::store_rows(nullptr, host_, 0, split, raw.data(), memory_.data());
    cuda::store_rows(nullptr, host_, split, rows * count - split, second, memory_.data());
    cuda::check(cudaDeviceSynchronize(), "store_rows");
  }
  Weight weight() const { return cuda::device_weight(host_, memory_.data()); }
  reference::Matrix values() const {
    reference::Matrix m = reference::loaded_values(host_);
    if (cuda::device_dtype(host_) == DType::bf16) {
      for (double& v : m.data)
        v = bf16_to_f32(f32_to_bf16(static_cast<float>(v)));
    }
    return m;
  }

 private:
  std::vector<uint8_t> bytes_;
  HostTensor host_;
  cuda::DeviceBuffer memory_;
};

/// Gate and up of `rows` rows each, contiguous, as the halves of one weight.
class GateAndUp {
 public:
  GateAndUp(DType dtype, int64_t rows, int64_t cols, uint64_t seed)
      : both_(dtype, 2 * rows, cols, seed), gate_(both_.weight()), up_(gate_) {
    gate_.rows = up_.rows = rows;
    const int64_t bytes = cuda::is_tiled(gate_.dtype)
                              ? cuda::strips_of(rows) * cuda::tiles_of(cols) * cuda::tile_bytes(gate_.dtype)
                              : static_cast<int64_t>(gate_.matrix_bytes());
    up_.data = static_cast<const char*>(gate_.data) + bytes;
    gate_values_ = up_values_ = both_.values();
    gate_values_.rows = up_values_.rows = rows;
    const auto half = static_cast<std::ptrdiff_t>(rows * cols);
    gate_values_.data.erase(gate_values_.data.begin() + half, gate_values_.data.end());
    up_values_.data.erase(up_values_.data.begin(), up_values_.data.begin() + half);
  }
  const Weight& gate() const { return gate_; }
  const Weight& up() const { return up_; }
  const reference::Matrix& gate_values() const { return gate_values_; }
  const reference::Matrix& up_values() const { return up_values_; }

 private:
  DeviceWeight both_;
  Weight gate_, up_;
  reference::Matrix gate_values_, up_values_;
};

/// Normal values that `dtype` can represent.
inline std::vector<float> random_activations(DType dtype, int64_t count, uint64_t seed) {
  std::vector<float> x = normal_values(count, seed);
  if (dtype == DType::bf16) {
    for (float& value : x)
      value = bf16_to_f32(f32_to_bf16(value));
  }
  return x;
}

}  // namespace minfer::test
