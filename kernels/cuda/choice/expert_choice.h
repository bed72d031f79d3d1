#pragma once

#include "kernels/cuda/device/device_facts.h"
#include "kernels/tensor_view.h"

/// Which kernel computes a product of experts, as product_choice.h has it of other products.
namespace minfer::cuda {

enum class ExpertKernel : uint8_t {
  vector,        ///< each route alone: moe_vector_product(), moe_bf16_vector_product()
  expert_strip,  ///< few routes of an expert, quantised weights: expert_strip.cuh
  stream,        ///< many routes of an expert, sorted, on Hopper: expert_stream.h
  strip,         ///< on tensor cores of any GPU: moe_strip_product()
  rows,          ///< f32 arithmetic, any type: moe_row_product()
};

/// out [routes, rows] of x, each row of which takes `used` of the experts.
struct ExpertShape {
  DType weight = DType::bf16;
  DType x = DType::bf16;
  int64_t rows = 0;  ///< of an expert
  int64_t cols = 0;
  int64_t experts = 0;
  // Addresses and distances of rows, all of which a loaded model's are:
  bool x_is_aligned = true;       ///< x to 16 bytes, its rows to eight elements
  bool out_is_aligned = true;     ///< out to four elements, its rows too, biases to 16 bytes
  bool out_takes_pieces = true;   ///< rows of out to 16 bytes
  bool weight_is_aligned = true;  ///< weights to 16 bytes, and up's address above gate's
  bool has_sorted_x = true;       ///< there is memory for what stream brings in order
};

struct ExpertChoice {
  ExpertKernel kernel;
  int32_t batch_routes = 0;  ///< of an expert that are multiplied together; 0: each alone
  int32_t turn_routes = 0;   ///< RouteGroups::turn_routes
};

/// The fastest kernel for `tokens` tokens of `used` experts each, by measurements on an H200.
ExpertChoice choose_experts(const ExpertShape& shape, int64_t tokens, int64_t used,
                            const DeviceFacts& device);

/// ExpertKernel::stream multiplies 32, 64 or 128 routes of an expert together. 0: the kernels for few routes are faster.
int32_t expert_token_tile(DType weights, int64_t routes, int64_t experts);

}  // namespace minfer::cuda
