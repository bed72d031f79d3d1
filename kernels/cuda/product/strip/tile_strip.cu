#include "kernels/cuda/product/strip/strip_kernels.h"
#include "kernels/cuda/product/strip/tile_strip.cuh"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
namespace {

template <DType type>
void run(Launch& launch, const ProductArgs& args) {
  args.up != nullptr ? launch_tile_strips<type, 2>(launch, args) : launch_tile_strips<type, 1>(launch, args);
}

}  // namespace

void tile_strip_product(Launch& launch, DType type, const ProductArgs& args) {
  for_type(CommonTypes{}, "tile_strip_product", type, [&](auto known) { run<known>(launch, args); });
}

}  // namespace minfer::cuda
