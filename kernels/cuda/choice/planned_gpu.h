#pragma once

#include "kernels/cuda/choice/product_choice.h"
#include "kernels/cuda/device/device_dtype.h"
#include "kernels/cuda/device/shape_limits.h"
#include "kernels/target.h"

namespace minfer::cuda {

/// An H200 that need not be there, for planning a model's program. Its weights have types and shapes alone.
class PlannedGpu : public Target {
 public:
  BackendInfo info() const override {
    return {.name = "cuda", .device = "planned", .activation_dtype = DType::bf16};
  }
  ShapeLimits shape_limits() const override { return cuda::shape_limits(DType::bf16); }
  Weight load(const HostTensor& tensor) override { return device_weight(tensor, this); }
  bool takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size) const override {
    return cuda::takes_fp8(weights, tokens, head_size, kH200);
  }
  bool takes_norm(std::span<const Weight> weights, int64_t tokens) const override {
    return cuda::takes_norm(weights, tokens, kH200);
  }
};

}  // namespace minfer::cuda
