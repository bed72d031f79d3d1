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

}  // namespace minfer::cuda
