#include "kernels/cuda/moe/moe_panel_product.cuh"

namespace minfer::cuda {

void moe_gate_up_panels(Launch& launch, const MoeProduct& product, int token_tiles) {
  launch_moe_panels_of_type<2>(launch, product, token_tiles);
}

}  // namespace minfer::cuda
