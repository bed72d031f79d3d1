#include "kernels/cuda/panel_kernels.h"
#include "kernels/cuda/tile_block.cuh"

namespace minfer::cuda {

void tile_block_product(Launch& launch, DType type, const PanelArgs& args) {
  switch (type) {
    case DType::q4_0:
      return run_tile_block<DType::q4_0>(launch, args);
    case DType::q8_0:
      return run_tile_block<DType::q8_0>(launch, args);
    case DType::q4_k:
      return run_tile_block<DType::q4_k>(launch, args);
    case DType::q5_k:
      return run_tile_block<DType::q5_k>(launch, args);
    case DType::q6_k:
      return run_tile_block<DType::q6_k>(launch, args);
    default:
      unsupported("tile_block_product", "a type in tiles", name(type));
  }
}

}  // namespace minfer::cuda
