#include "kernels/cuda/moe/stream/expert_stream.h"

#include "kernels/cuda/moe/stream/expert_stream_kernels.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
namespace {

bool is_aligned(const void* data, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace

bool can_stream_experts(const MoeProduct& p) {
  const bool has_kernels = p.dtype == DType::bf16 || (is_tiled(p.dtype) && expert_dtype(p.dtype) == p.dtype);
  const bool takes_up = p.up == nullptr || p.up > p.weight;
  const bool takes_eights =  // which bf16 weights are brought by, and rows in bf16 stored
      p.dtype != DType::bf16 ||
      (p.rows % 8 == 0 && (p.out_is_f32 || (p.out_stride % 8 == 0 && is_aligned(p.out, 16))));
  return has_kernels && takes_up && takes_eights && !p.x_is_f32 && p.cols % 8 == 0 && p.x_stride % 8 == 0 &&
         p.rows % 4 == 0 && p.out_stride % 4 == 0 && is_aligned(p.x, 16) && is_aligned(p.weight, 16) &&
         is_aligned(p.up, 16) && is_aligned(p.bias, 16) && is_aligned(p.up_bias, 16) &&
         is_aligned(p.out, p.out_is_f32 ? 16 : 8);
}

void expert_stream_product(Launch& launch, const MoeProduct& product, void* sorted_x) {
  const Tensor x{const_cast<void*>(product.x), DType::bf16, product.num_routes / product.routes_per_x,
                 product.cols, product.x_stride};
  const Tensor sorted{sorted_x, DType::bf16, product.num_routes, product.cols,
                      sorted_row_bytes(product.cols) / 2};
  gather_routes(launch, x, product.routes_per_x, product.groups, product.input_weights, sorted);
  MoeProduct sorted_product = product;
  sorted_product.x = sorted.data;
  sorted_product.x_stride = sorted.stride;
  sorted_product.routes_per_x = 1;
  if (product.dtype == DType::bf16) return launch_bf16_experts(launch, sorted_product);
  for_type(ExpertTypes{}, "expert_stream_product", product.dtype,
           [&](auto type) { launch_expert_tiles<type>(launch, sorted_product); });
}

}  // namespace minfer::cuda
