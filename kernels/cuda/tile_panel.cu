#include "kernels/cuda/panel_kernels.h"
#include "kernels/cuda/tile_panel.cuh"

namespace minfer::cuda {

void tile_panel_product(Launch& launch, DType type, const PanelArgs& args) {
  switch (type) {
    case DType::q4_0:
      return run_tile_panel<DType::q4_0, 8, 5, 4>(launch, args);
    case DType::q8_0:
      return run_tile_panel<DType::q8_0, 8, 2, 2>(launch, args);
    case DType::q4_k:
      return run_tile_panel<DType::q4_k, 8, 5, 4>(launch, args);
    case DType::q5_k:
      return run_tile_panel<DType::q5_k, 8, 4, 3>(launch, args);
    case DType::q6_k:
      return run_tile_panel<DType::q6_k, 8, 3, 3>(launch, args);
    default:
      unsupported("tile_panel_product", "a type in tiles", name(type));
  }
}

}  // namespace minfer::cuda
