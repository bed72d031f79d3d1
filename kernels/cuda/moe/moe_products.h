#pragma once

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/moe/moe_product.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// The products of experts with the memory they need. Owned by LinearOps.
class MoeProducts {
 public:
  explicit MoeProducts(const StepLimits& limits);

  /// See MoeGateUpArgs. x and out bf16 or f32; gate and up of one type.
  void gate_up_swiglu(Launch& launch, const MoeGateUpArgs& args);
  /// See MoeDownArgs. hidden bf16 or f32; out f32.
  void down(Launch& launch, const MoeDownArgs& args);

 private:
  int64_t chunk_tokens(int32_t experts_used) const;
  void multiply(Launch& launch, MoeProduct product, int64_t tokens);

  int64_t max_routes_ = 0;  ///< that are multiplied at a time
  DeviceBuffer batches_;
  DeviceBuffer routes_;
  DeviceBuffer products_;  ///< [max_routes, hidden] f32 of down before the experts are added up
};

}  // namespace minfer::cuda
