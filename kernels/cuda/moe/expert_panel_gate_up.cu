#include "kernels/cuda/moe/expert_panel.cuh"

namespace minfer::cuda {

void expert_panel_gate_up(Launch& launch, const MoeProduct& product) {
  for_type(CommonTypes{}, "expert_panel_product", product.dtype,
           [&](auto type) { launch_expert_panels<type, 2>(launch, product); });
}

}  // namespace minfer::cuda
