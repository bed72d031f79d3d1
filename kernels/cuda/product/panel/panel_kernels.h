#pragma once

#include "kernels/cuda/product/panel_product.h"

/// The kernels behind panel_product(), one file of instantiations each.
namespace minfer::cuda {

/// 1 to 8 tokens.
void bf16_panel_product(Launch& launch, const PanelArgs& args);
/// One token; `type` is a tiled one.
void tile_vector_product(Launch& launch, DType type, const PanelArgs& args);
/// Two matrices of different types with one token, in one launch, if there is a kernel for these types: those of Q4_K_M and Q5_K_M, whose
/// values are Q6_K in half of the layers. Whether there was.
bool tile_vector_pair(Launch& launch, DType type, const PanelArgs& first, DType other,
                      const PanelArgs& second);
/// 2 to 8 tokens; `type` is a tiled one, not a rare one.
void tile_panel_product(Launch& launch, DType type, const PanelArgs& args);
/// As tile_vector_pair().
bool tile_panel_pair(Launch& launch, DType type, const PanelArgs& first, DType other,
                     const PanelArgs& second);

}  // namespace minfer::cuda
