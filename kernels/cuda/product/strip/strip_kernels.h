#pragma once

#include "kernels/cuda/product/operands/product_args.h"

/// The kernels behind strip_product(), one file of instantiations each.
namespace minfer::cuda {

/// 1 to 8 tokens.
void bf16_strip_product(Launch& launch, const ProductArgs& args);
/// One token; `type` is a tiled one.
void tile_vector_product(Launch& launch, DType type, const ProductArgs& args);
/// Two matrices of different types with one token, in one launch. There are kernels for the types of Q4_K_M and
/// Q5_K_M, whose values are Q6_K in half of the layers. Returns whether there is a kernel for these types.
bool tile_vector_pair(Launch& launch, DType type, const ProductArgs& first, DType other,
                      const ProductArgs& second);
/// 2 to 8 tokens; `type` is a tiled one, not a rare one.
void tile_strip_product(Launch& launch, DType type, const ProductArgs& args);
/// As tile_vector_pair().
bool tile_strip_pair(Launch& launch, DType type, const ProductArgs& first, DType other,
                     const ProductArgs& second);

}  // namespace minfer::cuda
