#include <algorithm>

#include "kernels/cuda/moe/expert_panel.cuh"

namespace minfer::cuda {

int32_t expert_panel_routes(DType type, int64_t cols) {
  if (!is_tiled(type) || is_rare(type)) return 0;
  int32_t tiles = 0;
  for_type(CommonTypes{}, "expert_panel_product", type, [&](auto known) {
    using Panel = ExpertPanel<known>;
    tiles = std::min(Panel::slots(tiles_of(cols)), Panel::kMostTiles);
  });
  return kPanelTokens * tiles;
}

void expert_panel_single(Launch& launch, const MoeProduct& product) {
  for_type(CommonTypes{}, "expert_panel_product", product.dtype,
           [&](auto type) { launch_expert_panels<type, 1>(launch, product); });
}

void expert_panel_product(Launch& launch, const MoeProduct& product) {
  product.up != nullptr ? expert_panel_gate_up(launch, product) : expert_panel_single(launch, product);
}

}  // namespace minfer::cuda
