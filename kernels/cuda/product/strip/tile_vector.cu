#include "kernels/cuda/product/strip/strip_kernels.h"
#include "kernels/cuda/product/strip/tile_vector.cuh"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
namespace {

template <DType type, bool kNorm>
void run(Launch& launch, const ProductArgs& args) {
  using Multiplier = TileVectorMultiplier<type, kNorm>;
  args.up != nullptr ? launch_strips<Multiplier, 2>(launch, args)
                     : launch_strips<Multiplier, 1>(launch, args);
}

}  // namespace

void tile_vector_product(Launch& launch, DType type, const ProductArgs& args) {
  for_type(TiledTypes{}, "tile_vector_product", type, [&](auto known) {
    args.norm != nullptr ? run<known, true>(launch, args) : run<known, false>(launch, args);
  });
}

}  // namespace minfer::cuda
