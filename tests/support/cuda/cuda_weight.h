#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/device/check.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/weights/weights.h"
#include "kernels/half.h"
#include "tests/reference/quantise.h"
#include "tests/support/random_data.h"

namespace minfer::test {

/// `count` random matrices [rows, cols] of a type in their device layout.
class CudaWeight {
 public:
  CudaWeight(DType dtype, int64_t count, int64_t rows, int64_t cols, uint64_t seed)
      : bytes_(random_weights(file_dtype(dtype), count * rows, cols, seed)),
        host_{random_tensor(dtype, bytes_, count, rows, cols)},
        memory_(cuda::device_bytes(host_), "weight") {
    const cuda::DeviceBuffer raw(bytes_.size(), "raw weight");
    cuda::check(cudaMemcpy(raw.data(), bytes_.data(), bytes_.size(), cudaMemcpyHostToDevice), "upload");
    cuda::store_rows(nullptr, host_, 0, count * rows, raw.data(), memory_.data());
    cuda::check(cudaDeviceSynchronize(), "store_rows");
  }
  Weight weight() const { return cuda::device_weight(host_, memory_.data()); }
  /// The matrices as the device holds them.
  std::vector<reference::Matrix> matrices() const {
    std::vector<reference::Matrix> result;
    const size_t bytes = bytes_.size() / static_cast<size_t>(host_.count);
    HostTensor matrix = host_;
    matrix.count = 1;
    for (int64_t i = 0; i < host_.count; ++i) {
      matrix.data = bytes_.data() + static_cast<size_t>(i) * bytes;
      result.push_back(reference::loaded_values(matrix));
      if (weight().dtype == host_.dtype || weight().dtype != DType::bf16) continue;
      for (double& value : result.back().data)
        value = bf16_to_f32(f32_to_bf16(static_cast<float>(value)));
    }
    return result;
  }

 private:
  std::vector<uint8_t> bytes_;
  HostTensor host_;
  cuda::DeviceBuffer memory_;
};

}  // namespace minfer::test
