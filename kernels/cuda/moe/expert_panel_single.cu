#include <algorithm>

#include "kernels/cuda/moe/expert_panel.cuh"

namespace minfer::cuda {

int32_t expert_panel_routes(const MoeProduct& p) {
  if (!is_tiled(p.dtype) || is_rare(p.dtype)) return 0;
  const bool aligned = p.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0 && p.cols % 8 == 0;
  if (p.x_is_f32 || !aligned) return 0;
  int32_t tiles = 0;
  for_type(CommonTypes{}, "expert_panel_product", p.dtype, [&](auto type) {
    using Panel = ExpertPanel<type>;
    tiles = std::min(Panel::slots(tiles_of(p.cols)), Panel::kMostTiles);
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
