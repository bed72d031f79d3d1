#include "kernels/cuda/panel_product.h"

#include "kernels/cuda/panel_kernels.h"
#include "kernels/cuda/weight_layout.h"

namespace minfer::cuda {

int32_t max_panel_tokens(DType type) {
  return type == DType::bf16 || is_tiled(type) ? 16 : 0;
}

void panel_product(Launch& launch, DType type, const PanelArgs& args) {
  if (type == DType::bf16) {
    bf16_panel_product(launch, args);
  } else if (args.tokens == 1) {
    tile_vector_product(launch, type, args);
  } else {
    tile_panel_product(launch, type, args);
  }
}

}  // namespace minfer::cuda
