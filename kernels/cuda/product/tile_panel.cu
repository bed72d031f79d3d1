#include "kernels/cuda/product/panel_kernels.h"
#include "kernels/cuda/product/tile_panel.cuh"

namespace minfer::cuda {
namespace {

template <DType type, int kWarps, int kStages>
void run(Launch& launch, const PanelArgs& args) {
  using Multiplier = TilePanelMultiplier<type, kWarps, kStages>;
  args.up != nullptr ? launch_panels<Multiplier, 2>(launch, args)
                     : launch_panels<Multiplier, 1>(launch, args);
}

}  // namespace

void tile_panel_product(Launch& launch, DType type, const PanelArgs& args) {
  switch (type) {
    case DType::q4_0:
      return run<DType::q4_0, 16, 2>(launch, args);
    case DType::q8_0:
      return run<DType::q8_0, 12, 2>(launch, args);
    case DType::q4_k:
      return run<DType::q4_k, 16, 2>(launch, args);
    case DType::q5_k:
      return run<DType::q5_k, 16, 2>(launch, args);
    case DType::q6_k:
      return run<DType::q6_k, 12, 2>(launch, args);
    default:
      unsupported("tile_panel_product", "a type in tiles", name(type));
  }
}

}  // namespace minfer::cuda
