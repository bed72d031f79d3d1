#pragma once

#include "kernels/cuda/device/attributes.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/cuda/moe/moe_products.h"
#include "kernels/cuda/product/matmul.h"
#include "kernels/cuda/product/panel_product.h"
#include "kernels/cuda/product/product.h"
#include "kernels/cuda/product/stream/stream_product.h"
#include "kernels/op_args.h"

namespace minfer::cuda {

/// How a product is computed.
enum class ProductPath : uint8_t {
  row_product,        ///< f32 arithmetic: f32 weights, few tokens with f16 weights
  panel_product,      ///< streams bf16 or quantised weights past few tokens
  matmul,             ///< cuBLASLt
  f16_matmul,         ///< cuBLASLt with x as f16
  dequantise_matmul,  ///< to x's type by chunks of rows, then cuBLASLt
};

/// The path of a product that neither stream_product() nor tile_stream_product() takes, of `tokens` rows of x with a weight of `cols`
/// columns, by measurements on an H200
/// (see panel_product.cpp). x is bf16 or f32: with f32 nothing is rounded below f32, at the price of speed
/// for all weights but f32 ones.
ProductPath product_path(DType weight, DType x, int64_t tokens, int64_t cols);

/// See Backend::takes_fp8(): FP8 weights, of sizes that fp8_stream_product() takes, and heads of 128, which attention writes so; one
/// token is faster with x in bf16.
bool takes_fp8(std::span<const Weight> weights, int64_t tokens, int32_t head_size, bool has_wgmma);

/// See Backend::takes_norm(): one token, and weights that panel_product() has a kernel with a norm for.
bool takes_norm(std::span<const Weight> weights, int64_t tokens);

/// Products with weights, dense and of experts, with the memory they need. Owned by the backend; one thread
/// at a time.
class LinearOps {
 public:
  LinearOps(int32_t num_sms, const StepLimits& limits);

  /// See LinearArgs. x bf16, f32 or, where takes_fp8(), fp8; out f32, or bf16 with bf16 or fp8 x. Weights that lie one behind the other in
  /// memory and have one type are multiplied as one matrix.
  void linear(Launch& launch, const LinearArgs& args);
  /// See GateUpArgs. Of fp8 x out is fp8 too.
  void gate_up_swiglu(Launch& launch, const GateUpArgs& args);
  void moe_gate_up_swiglu(Launch& launch, const MoeGateUpArgs& args) { moe_.gate_up_swiglu(launch, args); }
  void moe_down(Launch& launch, const MoeDownArgs& args) { moe_.down(launch, args); }

 private:
  void multiply(Launch& launch, const Product& product);
  /// Both in one launch, if there is a kernel for it; whether there was.
  bool multiply_both(Launch& launch, const Product& first, const Product& second) const;
  void f16_matmul(Launch& launch, const Product& product);
  void dequantise_matmul(Launch& launch, const Product& product);
  /// gate and up rows [first, first + count) with some tokens, side by side into the scratch.
  Tensor gate_up_product(Launch& launch, const GateUpArgs& args, int64_t first, int64_t count,
                         const Tensor& x);
  PanelArgs panel_args(const Product& product) const;
  /// Throws Error if panel_product() could not take it.
  void check_panel_args(const Product& product) const;
  /// The same of a product with a norm in front.
  void check_front_norm(const Product& product) const;
  bool is_streamed(DType weight, DType x, const PanelArgs& args, int32_t num_sms) const;
  /// Of gate and up, which may have different types: both are if one has to be.
  bool is_dequantised(const GateUpArgs& args, int32_t num_sms) const;

  const bool has_wgmma_ = has_wgmma();
  MoeProducts moe_;
  Matmul matmul_;
  PanelWorkspace panel_workspace_;
  DeviceBuffer weight_scratch_;   ///< rows of a weight in x's type
  DeviceBuffer x_scratch_;        ///< [tokens, K] f16
  DeviceBuffer gate_up_scratch_;  ///< [tokens, 2 F] f32 before SwiGLU
};

}  // namespace minfer::cuda
