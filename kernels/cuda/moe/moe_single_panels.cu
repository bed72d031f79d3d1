#include "kernels/cuda/moe/moe_panel_product.cuh"

namespace minfer::cuda {

void moe_single_panels(Launch& launch, const MoeProduct& product, int token_tiles) {
  launch_moe_panels_of_type<1>(launch, product, token_tiles);
}

void moe_panel_product(Launch& launch, const MoeProduct& product, int token_tiles) {
  product.up != nullptr ? moe_gate_up_panels(launch, product, token_tiles)
                        : moe_single_panels(launch, product, token_tiles);
}

}  // namespace minfer::cuda
