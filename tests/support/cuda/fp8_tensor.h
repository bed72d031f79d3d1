#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/fp8_activations.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/fp8.h"
#include "kernels/half.h"

namespace minfer::test {

/// Activations [rows, cols] of fp8 in device memory, as in fp8_activations.h, followed by canaries.
class Fp8Tensor {
 public:
  /// NaN everywhere if `values` is empty.
  Fp8Tensor(int64_t rows, int64_t cols, std::span<const float> values = {})
      : rows_(rows),
        cols_(cols),
        stride_((rows + 7) / 8 * 8),
        memory_(static_cast<size_t>(bytes() + kCanaries), "test data") {
    std::vector<uint8_t> host(memory_.bytes(), 0xff);
    for (int64_t row = 0; !values.empty() && row < rows; ++row) {
      for (int64_t first = 0; first < cols; first += cuda::kFp8Columns)
        encode(values.data() + row * cols + first, row, first, host);
    }
    cuda::check(cudaMemcpy(memory_.data(), host.data(), host.size(), cudaMemcpyHostToDevice), "copy");
    cuda::check(cudaDeviceSynchronize(), "copy");
  }
  Tensor tensor() const { return {memory_.data(), DType::fp8, rows_, cols_, cols_}; }

  /// The values of the codes and scales. Checks the canaries.
  std::vector<float> values() const {
    const std::vector<uint8_t> host = download();
    for (int64_t i = bytes(); i < std::ssize(host); ++i)
      EXPECT_EQ(host[static_cast<size_t>(i)], 0xff) << "wrote behind its output";
    std::vector<float> result;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; ++col) {
        const uint8_t code = host[static_cast<size_t>(row * cols_ + place_of(col))];
        result.push_back((code & 0x7f) == 0x7f ? NAN : e4m3_to_f32(code) * scale(host, row, col));
      }
    }
    return result;
  }
  /// Scales of each 128 columns of each row, [rows][cols / 128].
  std::vector<float> scales() const {
    const std::vector<uint8_t> host = download();
    std::vector<float> result;
    for (int64_t row = 0; row < rows_; ++row) {
      for (int64_t col = 0; col < cols_; col += cuda::kFp8Columns)
        result.push_back(scale(host, row, col));
    }
    return result;
  }

 private:
  static constexpr int64_t kCanaries = 64;

  static int64_t place_of(int64_t col) {
    const int64_t within = col % 16;
    return col - within + within % 8 / 2 * 4 + within % 2 * 2 + within / 8;
  }
  int64_t bytes() const { return rows_ * cols_ + cols_ / cuda::kFp8Columns * stride_ * 2; }
  size_t scale_at(int64_t row, int64_t col) const {
    return static_cast<size_t>(rows_ * cols_ + 2 * (col / cuda::kFp8Columns * stride_ + row));
  }
  float scale(const std::vector<uint8_t>& host, int64_t row, int64_t col) const {
    const size_t at = scale_at(row, col);
    return bf16_to_f32(static_cast<uint16_t>(host[at] | host[at + 1] << 8));
  }
  void encode(const float* values, int64_t row, int64_t first, std::vector<uint8_t>& host) const {
    float largest = 0.0f;
    for (int i = 0; i < cuda::kFp8Columns; ++i)
      largest = std::max(largest, std::abs(values[i]));
    const uint16_t bits = fp8_scale(std::bit_cast<uint32_t>(largest));
    const size_t at = scale_at(row, first);
    host[at] = static_cast<uint8_t>(bits);
    host[at + 1] = static_cast<uint8_t>(bits >> 8);
    for (int i = 0; i < cuda::kFp8Columns; ++i)
      host[static_cast<size_t>(row * cols_ + place_of(first + i))] =
          bits == 0 ? 0 : f32_to_e4m3(values[i] / bf16_to_f32(bits));
  }
  std::vector<uint8_t> download() const {
    std::vector<uint8_t> host(memory_.bytes());
    cuda::check(cudaDeviceSynchronize(), "test");
    cuda::check(cudaMemcpy(host.data(), memory_.data(), host.size(), cudaMemcpyDeviceToHost), "copy");
    return host;
  }

  int64_t rows_, cols_, stride_;
  cuda::DeviceBuffer memory_;
};

}  // namespace minfer::test
