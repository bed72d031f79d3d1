#include "kernels/cuda/product/panel_kernels.h"
#include "kernels/cuda/product/tile_vector.cuh"

namespace minfer::cuda {
namespace {

template <DType type, int kWarps, int kStages>
void run(Launch& launch, const PanelArgs& args) {
  using Multiplier = TileVectorMultiplier<type, kWarps, kStages>;
  args.up != nullptr ? launch_panels<Multiplier, 2>(launch, args)
                     : launch_panels<Multiplier, 1>(launch, args);
}

}  // namespace

void tile_vector_product(Launch& launch, DType type, const PanelArgs& args) {
  switch (type) {
    case DType::q4_0:
      return run<DType::q4_0, 16, 3>(launch, args);
    case DType::q8_0:
      return run<DType::q8_0, 16, 2>(launch, args);
    case DType::q4_k:
      return run<DType::q4_k, 16, 3>(launch, args);
    case DType::q5_k:
      return run<DType::q5_k, 16, 3>(launch, args);
    case DType::q6_k:
      return run<DType::q6_k, 16, 2>(launch, args);
    default:
      unsupported("tile_vector_product", "a type in tiles", name(type));
  }
}

}  // namespace minfer::cuda
