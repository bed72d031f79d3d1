#pragma once

#include "kernels/cuda/product/panel_product.h"

/// The kernels behind panel_product(), one file of instantiations each.
namespace minfer::cuda {

/// 1 to 8 tokens.
void bf16_panel_product(Launch& launch, const PanelArgs& args);
/// One token; `type` is a tiled one.
void tile_vector_product(Launch& launch, DType type, const PanelArgs& args);
/// 2 to 8 tokens; `type` is a tiled one, not a rare one.
void tile_panel_product(Launch& launch, DType type, const PanelArgs& args);
/// Any number of tokens; `type` is a tiled one, not a rare one.
void tile_block_product(Launch& launch, DType type, const PanelArgs& args);

}  // namespace minfer::cuda
