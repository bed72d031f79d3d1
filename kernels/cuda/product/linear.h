#pragma once

#include "kernels/cuda/choice/product_choice.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/product/matmul.h"
#include "kernels/cuda/product/operands/product_args.h"
#include "kernels/cuda/product/product.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// Products with dense weights, with the memory they need. Owned by the backend; one thread
/// at a time.
class LinearOps {
 public:
  LinearOps(int32_t num_sms, const StepLimits& limits);

  /// See LinearArgs. x bf16, f32 or, if takes_fp8(), fp8; out f32, or bf16 with bf16 or fp8 x. With f32 x
  /// nothing is rounded below f32, which is slow for all weights but f32 ones. Weights that lie one behind the
  /// other in memory and have one type are multiplied as one matrix.
  void linear(Launch& launch, const LinearArgs& args);
  /// See GateUpArgs. With fp8 x, out is fp8 too.
  void gate_up_swiglu(Launch& launch, const GateUpArgs& args);

 private:
  void multiply(Launch& launch, const Product& product);
  /// Multiplies both in one launch, if there is a kernel for it; returns whether there was.
  bool multiply_both(Launch& launch, const Product& first, const Product& second) const;
  void f16_matmul(Launch& launch, const Product& product);
  void dequantise_matmul(Launch& launch, const Product& product);
  /// Rows [first, first + count) of gate and up with some tokens, side by side into the scratch.
  Tensor gate_up_product(Launch& launch, const GateUpArgs& args, bool dequantises, int64_t first,
                         int64_t count, const Tensor& x);
  ProductArgs product_args(const Product& product) const;

  const DeviceFacts device_;
  Matmul matmul_;
  ProductWorkspace product_workspace_;
  DeviceBuffer weight_scratch_;   ///< rows of a weight in x's type
  DeviceBuffer x_scratch_;        ///< [tokens, K] f16
  DeviceBuffer gate_up_scratch_;  ///< [tokens, 2 F] f32 before SwiGLU
};

}  // namespace minfer::cuda
