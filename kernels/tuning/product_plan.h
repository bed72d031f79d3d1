#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/device/devices.h"
#include "kernels/cuda/product/stream/stream_plan.h"
#include "kernels/dtype.h"

/// Which kernels can compute a product with weights on a GPU, and how each may be divided: what is searched by measuring. Pure
/// functions of shapes and of a device's attributes.
namespace minfer::cuda {

enum class ProductOp : uint8_t {
  linear,
  linear_add,  ///< out += instead of out =
  gate_up,     ///< of two such matrices, with the activation
};

/// A product with bf16 activations, but for its number of tokens.
struct ProductShape {
  DType type = DType::bf16;  ///< of the weights in device memory
  ProductOp op = ProductOp::linear;
  int64_t rows = 0;  ///< of the output; of gate_up as many of each matrix
  int64_t cols = 0;
  auto operator<=>(const ProductShape&) const = default;
};

enum class ProductKernel : uint8_t {
  automatic,    ///< what LinearOps takes by itself: rules that were measured on an H200
  panel,        ///< bf16_panel.cu: 1 to 8 tokens
  tile_vector,  ///< tile_vector.cuh: 1 token
  tile_panel,   ///< tile_panel.cuh: 2 to 8
  tile_block,   ///< tile_block.cuh: up to 128
  stream,       ///< stream_product.cuh: bf16 on Hopper
  tile_stream,  ///< tile_stream.cuh: quantised on Hopper
  cublaslt,     ///< bf16; gate_up: both products, then the activation
  dequantise,   ///< quantised, by chunks of rows; then stream (gate_up) or cublaslt
};

/// How a product is computed. `tiles`, but for its blocks, says how stream and tile_stream divide it.
struct ProductPlan {
  ProductKernel kernel = ProductKernel::automatic;
  StreamPlan tiles = {};

  bool has_tiles() const { return kernel == ProductKernel::stream || kernel == ProductKernel::tile_stream; }
};
bool operator==(const ProductPlan& a, const ProductPlan& b);

/// The device that plans are for.
struct PlanDevice {
  std::string name;   ///< e.g. "NVIDIA H200"
  int32_t major = 0;  ///< compute capability
  int32_t minor = 0;
  int32_t multiprocessors = 0;
  bool operator==(const PlanDevice&) const = default;
  bool is_hopper() const { return has_hopper_tensor_cores(major, minor); }
};
PlanDevice plan_device(const CudaDevice& device);
/// "NVIDIA H200 (sm_90, 132 multiprocessors)".
std::string to_string(const PlanDevice& device);

std::string_view name(ProductOp op);
std::optional<ProductOp> product_op_from_name(std::string_view name);

/// The kernel's name, and of those with tiles ":TOKENSxROWS/" with "line", "rounds" or the number of splits: "stream:64x128/line",
/// "tile_stream:8x64/3", "cublaslt".
std::string to_string(const ProductPlan& plan);
/// Its inverse; none for anything else. Whether a kernel has such a tile is refusal()'s.
std::optional<ProductPlan> product_plan_from(std::string_view text);

/// Why a plan cannot compute a product of up to `tokens` tokens on a device; empty: it can. As far as shapes say: memory that is not
/// aligned is LinearOps' to see.
std::string refusal(const ProductPlan& plan, const ProductShape& shape, int64_t tokens,
                    const PlanDevice& device);

/// All plans worth a measurement, `automatic` first, which is alone where there is nothing to choose.
std::vector<ProductPlan> product_candidates(const ProductShape& shape, int64_t tokens,
                                            const PlanDevice& device);

/// `tiles` of a plan with the blocks that it takes for a product of `tokens` tokens.
StreamPlan stream_plan_of(const ProductPlan& plan, int64_t rows, int64_t tokens, bool gate_up,
                          int32_t multiprocessors);

}  // namespace minfer::cuda
