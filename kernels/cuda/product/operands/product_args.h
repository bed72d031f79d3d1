#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "kernels/activation.h"
#include "kernels/cuda/choice/product_choice.h"
#include "kernels/cuda/device/owners.h"
#include "kernels/cuda/launch/launch.h"
#include "kernels/dtype.h"

namespace minfer::cuda {

/// A product with few tokens. gate_up: out = activation(x weight^T + bias, x up^T + up_bias); otherwise `up` is null.
struct ProductArgs {
  const void* weight = nullptr;  ///< [rows, cols] in its device layout
  const void* up = nullptr;      ///< [rows, cols], for gate_up
  const void* x = nullptr;       ///< [tokens, cols] bf16, rows 16-byte aligned; f32 where `norm` is set
  const float* norm = nullptr;   ///< [cols] or null: x is x * norm / sqrt(mean of x^2 + norm_eps); one token
  float norm_eps = 0.0f;
  const float* bias = nullptr;     ///< [rows] or null
  const float* up_bias = nullptr;  ///< [rows] or null
  GateActivation activation = GateActivation::silu;
  void* out = nullptr;  ///< [tokens, rows] bf16 or f32
  int32_t rows = 0;
  int32_t cols = 0;
  int32_t tokens = 0;
  int32_t x_stride = 0;
  int64_t out_stride = 0;
  bool out_is_f32 = false;
  bool add_to_out = false;       ///< f32 only
  bool brings_x = false;         ///< the kernel for one token has shared memory for all of x
  float* partials = nullptr;     ///< ProductWorkspace's
  unsigned* arrivals = nullptr;  ///< ProductWorkspace's
};

/// Bytes of a ProductWorkspace for one SM. A stream kernel has one block there, and up to four groups of its 64 rows leave sums.
inline constexpr size_t kPartialBytesOfSm = size_t{128} << 10;
inline constexpr size_t kArrivalsOfSm = 4;

/// Partial sums over K that blocks exchange, and counts of those that have come (all zero between products).
struct ProductWorkspace {
  explicit ProductWorkspace(int32_t num_sms);
  DeviceBuffer partials;
  DeviceBuffer arrivals;
};

/// Takes what ProductKernel::strip takes.
void strip_product(Launch& launch, DType type, const ProductArgs& args);

}  // namespace minfer::cuda
