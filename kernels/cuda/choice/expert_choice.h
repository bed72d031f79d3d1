#pragma once

#include "kernels/cuda/device/device_facts.h"
#include "kernels/tensor_view.h"

/// Chooses the kernel that computes a product of experts. product_choice.h has the choice for other products.
namespace minfer::cuda {

enum class ExpertKernel : uint8_t {
  vector,        ///< each route alone: moe_vector_product(), moe_bf16_vector_product()
  expert_strip,  ///< few routes of an expert, quantised weights: expert_strip.cuh
  stream,        ///< many routes of an expert, sorted, on Hopper: expert_stream.h
  strip,         ///< on tensor cores of any GPU: moe_strip_product()
  rows,          ///< f32 arithmetic, any type: moe_row_product()
};

/// out [routes, rows] of x; each row of x goes to `used` of the experts.
struct ExpertShape {
  DType weight = DType::bf16;
  DType x = DType::bf16;
  int64_t rows = 0;  ///< of an expert
  int64_t cols = 0;
  int64_t experts = 0;
  // Addresses and distances of rows; a loaded model's have all of these properties:
  bool x_is_aligned = true;       ///< x to 16 bytes, its rows to eight elements
  bool out_is_aligned = true;     ///< out to four elements, its rows too, biases to 16 bytes
  bool out_takes_pieces = true;   ///< rows of out to 16 bytes
  bool weight_is_aligned = true;  ///< weights to 16 bytes, and up's address above gate's
  bool has_sorted_x = true;       ///< there is memory for the sorted x of `stream`
};

struct ExpertChoice {
  ExpertKernel kernel;
  int32_t batch_routes = 0;  ///< of an expert, multiplied together; 0: each alone
  int32_t turn_routes = 0;   ///< RouteGroups::turn_routes
};

/// The fastest kernel for `tokens` tokens of `used` experts each, as measured on an H200.
ExpertChoice choose_experts(const ExpertShape& shape, int64_t tokens, int64_t used,
                            const DeviceFacts& device);

/// Routes of an expert that ExpertKernel::stream multiplies together: 32, 64 or 128. 0: the kernels for few routes are faster.
int32_t expert_token_tile(DType weights, int64_t routes, int64_t experts);

}  // namespace minfer::cuda
