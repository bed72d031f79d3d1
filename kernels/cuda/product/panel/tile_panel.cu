#include "kernels/cuda/product/panel/panel_kernels.h"
#include "kernels/cuda/product/panel/tile_panel.cuh"
#include "kernels/cuda/weights/weight_types.h"

namespace minfer::cuda {
namespace {

template <DType type>
void run(Launch& launch, const PanelArgs& args) {
  args.up != nullptr ? launch_tile_panels<type, 2>(launch, args) : launch_tile_panels<type, 1>(launch, args);
}

}  // namespace

void tile_panel_product(Launch& launch, DType type, const PanelArgs& args) {
  for_type(CommonTypes{}, "tile_panel_product", type, [&](auto known) { run<known>(launch, args); });
}

}  // namespace minfer::cuda
