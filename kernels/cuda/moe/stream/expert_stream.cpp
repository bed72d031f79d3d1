#include "kernels/cuda/moe/stream/expert_stream.h"

#include "kernels/cuda/moe/stream/expert_stream_kernels.h"
#include "kernels/cuda/weights/weight_layout.h"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
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
